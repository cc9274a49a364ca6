"""Test commands that start ranks themselves: torchrun becomes a job of launch, the others are refused."""

from pathlib import Path

import pytest

from launcher.errors import UsageError
from launcher.options.parser import parse_options
from tests.launcher.loopback_cluster import LoopbackCluster
from tests.launcher.options.parsing import GPUS, PATH, parse, slots


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    workers = tmp_path / "workers"
    workers.write_text("node1\nnode2\nnode3\n")
    return {PATH: str(workers), GPUS: "0"}


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("-n 2 torchrun --nproc-per-node 4 train.py --lr 1", "-n 2 --nproc-per-node 4 train.py --lr 1"),
        ("torchrun --nnodes=2 --rdzv-id 7 --max_restarts 1 train.py", "-n 2 --max-restarts 1 train.py"),
        ("A=1 torchrun -m pkg.train x", "A=1 python -u -m pkg.train x"),
        ("env A=1 torchrun --no-python ./x.sh torchrun", "A=1 ./x.sh torchrun"),
        ("/opt/pytorch/bin/torchrun x.py", "/opt/pytorch/bin/python -u x.py"),
        ("torchrun ./train -n 9", "python -u ./train -n 9"),
        ("/v/python -u -m torch.distributed.run --nproc_per_node=2 x.py", "--nproc-per-node 2 /v/python -u x.py"),
        ("-n 2 -- torchrun --nproc-per-node 2 x.py", "-n 2 --nproc-per-node 2 python -u x.py"),
    ],
)
def test_word_torchrun_is_dropped(line: str, meant: str, environ: dict[str, str]) -> None:
    job, same = parse(line, environ), parse(meant, environ)
    assert (job.command, job.hosts, job.restart_policy) == (same.command, same.hosts, same.restart_policy)


def test_word_torchrun_is_dropped_in_a_quoted_line(environ: dict[str, str]) -> None:
    job = parse_options(["torchrun --nproc-per-node 4 x.py --name 'a b'"], environ=environ)
    assert job.command == ("python", "-u", "x.py", "--name", "a b")
    assert [host.slots for host in job.hosts] == [4, 4, 4]


def test_ranks_of_a_torchrun_line_join_one_job(cluster: LoopbackCluster) -> None:
    result = cluster.run("-n", "2", "torchrun", "--nproc-per-node", "2", "--no-python", "sh", "-c", "echo $WORLD_SIZE")
    assert (result.code, [line.split("] ")[1] for line in result.lines]) == (0, ["4"] * 4)


@pytest.mark.parametrize(
    ("line", "works"),
    [
        ("-n 2 accelerate launch --num_processes 4 t.py --lr 1", "launch -n 2 python t.py --lr 1"),
        ("deepspeed --num_gpus 8 t.py --deepspeed", "launch python t.py --deepspeed"),
        ("/opt/bin/deepspeed t.py", "launch python t.py"),
        ("A=1 horovodrun -np 4 -H a:2,b:2 python t.py", "launch --framework horovod A=1 python t.py"),
        ("mpirun -np 2 -x A python3 t.py", "launch --launcher mpi python3 t.py"),
        ("mpiexec -n 2 python t.py", "launch --launcher mpi python t.py"),
        ("srun --gpus 8 t.py", "launch python t.py"),
        ("python -m torch.distributed.launch --use-env t.py", "launch python t.py"),
        ("python -m accelerate.commands.launch t.py", "launch python t.py"),
    ],
)
def test_nested_launcher_is_refused_with_the_right_command(line: str, works: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line, environ)
    assert "starts ranks itself: each of the " in str(caught.value)
    assert str(caught.value).endswith(f" would train its own model; launch starts the ranks, as in: {works}")
    parse(works.removeprefix("launch "), environ)


@pytest.mark.parametrize(
    "line",
    [
        "cd /x && A=1 torchrun --nproc-per-node 2 t.py",
        "torchrun t.py | tee log",
        "A=$B torchrun t.py",
        "cd /x\ntorchrun t.py",
        "for i in 1 2; do torchrun t.py; done",
        "nohup torchrun t.py",
        "timeout 60 torchrun t.py",
        "uv run torchrun t.py",
        "conda run -n pytorch torchrun t.py",
    ],
)
def test_shell_line_that_starts_ranks_is_refused(line: str, environ: dict[str, str]) -> None:
    for words in ([line], ["bash", "-c", line], ["env", "A=1", "bash", "-lc", line]):
        with pytest.raises(UsageError, match=r"^torchrun starts ranks itself.* write only python t\.py in its place"):
            parse_options(words, environ=environ)


@pytest.mark.parametrize(
    "line",
    [
        "pip install deepspeed",
        "which torchrun",
        "timeout 60 pip install deepspeed",
        "accelerate config",
        "python torchrun.py",
        "python train.py torchrun",
        "python -m pytest -m torch.distributed.run",
        "-n 1 mpirun -np 2 -H a,b python t.py",
        "-n 1 deepspeed t.py",
    ],
)
def test_command_without_ranks_or_of_one_process_is_unchanged(line: str, environ: dict[str, str]) -> None:
    words = line.removeprefix("-n 1 ").split()
    assert parse(line, environ).command == tuple(words)
    assert set(slots(line, environ)) == {1}


def test_command_that_only_mentions_a_launcher_is_unchanged(environ: dict[str, str]) -> None:
    for line in ("echo torchrun x", "pip install deepspeed; true", "echo 'torchrun"):
        assert parse_options([line], environ=environ).command == ("/bin/bash", "-c", line)
