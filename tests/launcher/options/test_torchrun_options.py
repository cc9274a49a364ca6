"""Test torchrun's command lines, compared with torchrun's own parser and with a real run."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import UsageError
from launcher.options import torchrun_options
from launcher.options.parser import parse_options
from launcher.paths import JOBS_DIR
from launcher.spec import JobSpec
from tests.launcher.loopback_cluster import LoopbackCluster
from tests.launcher.options.parsing import GPUS, PATH, parse, slots

NODES = 4
RENDEZVOUS = "--rdzv-id=7 --rdzv-backend=c10d --rdzv-endpoint=node1:29400"
SHOW = "import os, sys; print(*(f'{n}={os.environ[n]}' for n in sys.argv[1:]), file=open(os.environ['RANK'], 'w'))"
SAME = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "OMP_NUM_THREADS"),
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    workers = tmp_path / "workers"
    workers.write_text("".join(f"node{number + 1}\n" for number in range(NODES)))
    return {PATH: str(workers), GPUS: "0"}


def torchruns(line: str) -> tuple[Any, list[str]]:
    """Return torchrun's own settings, and the command that it would run."""
    # Not at the top, because it takes a while and every worker of pytest collects this file.
    from torch.distributed.run import config_from_args, get_args_parser

    config, program, words = config_from_args(get_args_parser().parse_args(line.split()))
    return config, ["python" if program == sys.executable else str(program), *words]


def test_torchrun_line_is_parsed_as_torchrun_parses_it(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # otherwise torchrun sets it, in this process
    for line in (
        "--nnodes=2 --nproc-per-node=8 train.py --epochs 3 --nnodes 9",
        "--nnodes=4 --nproc_per_node=1 --max_restarts=3 dir/train.py",
        f"--nnodes=2:4 --nproc-per-node 2 --max-restarts=1 {RENDEZVOUS} train.py",
        "--nnodes=1:8 --nproc-per-node 1 --max-restarts 2 train.py -m x",
        "--nnodes 1 --nproc-per-node auto -m package.train --lr 0.1",
        "--nnodes 1 --nproc-per-node cpu --module train",
        "--nnodes 1:1 --nproc-per-node=2 --no-python ./train.sh x",
        "--nnodes 1 --nproc_per_node=2 --no_python train.py x",
        "--nnodes 2 --nproc-per-node 1 --node_rank 0 --master_addr 10.0.0.1 --master_port 29501 train.py",
        "--nnodes 1 --standalone --nproc-per-node=4 train.py",
    ):
        config, command = torchruns(line)
        job = parse(line, environ)
        assert list(job.command) == command, line
        assert {host.slots for host in job.hosts} == {config.nproc_per_node}, line
        assert len(job.hosts) == min(config.max_nodes, NODES), line
        policy = job.restart_policy
        assert (policy.max_restarts, policy.min_nodes) == (config.max_restarts, config.min_nodes), line
        assert job.is_local == ("--standalone" in line), line


def test_ranks_have_torchruns_variables(cluster: LoopbackCluster, tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    line = ["--standalone", "--nproc_per_node=2", "show.py", *SAME]
    found = {}
    for name, command in {
        "launch": [sys.executable, str(cluster.launcher), *line],
        "torchrun": [sys.executable, "-m", "torch.distributed.run", *line],
    }.items():
        ended = subprocess.run(
            command, cwd=tmp_path, env=cluster.environment, timeout=120, capture_output=True, check=False, text=True
        )
        assert ended.returncode == 0, ended.stderr
        found[name] = [(tmp_path / rank).read_text() for rank in "01"]
        for rank in "01":
            (tmp_path / rank).unlink()
    assert found["launch"] == found["torchrun"]
    assert "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2" in found["launch"][1]


def test_python_file_is_run_by_python_with_any_options(environ: dict[str, str]) -> None:
    def command(line: str) -> tuple[str, ...]:
        return parse(line, environ).command

    assert command("train.py") == command("-n 2 train.py") == ("python", "-u", "train.py")
    assert command("A=1 B=2 ./train.py x") == ("env", "A=1", "B=2", "python", "-u", "./train.py", "x")
    assert command("--launcher mpi train.py") == ("python", "-u", "train.py")
    assert command("python train.py") == ("python", "train.py")
    assert command("--nnodes 2 train.sh x") == ("train.sh", "x")


@pytest.mark.parametrize("line", ["python x.py", "cd $HOME; ./x.py", "$HOME/x.py", "x.py|y.py"])
def test_shell_line_is_not_run_by_python(environ: dict[str, str], line: str) -> None:
    assert parse_options([line], environ=environ).command == ("/bin/bash", "-c", line)


def test_note_names_ignored_rendezvous_options(environ: dict[str, str]) -> None:
    def notes(line: str) -> tuple[str, ...]:
        job: JobSpec = parse(line, environ)
        return job.notes

    assert notes("--nnodes 2 --rdzv-backend c10d train.py") == notes("--rdzv_backend static x.py") == ()
    assert notes(f"--nnodes 2 {RENDEZVOUS} --node-rank 0 train.py") == (
        "ignored: --rdzv-endpoint, --rdzv-id, --node-rank (launch sets up the rendezvous, and starts every node)",
    )


@pytest.mark.parametrize(
    ("line", "nodes", "is_noted"),
    [
        ("torchrun --standalone --nproc_per_node=2 x.py", 3, True),
        ("--standalone x.py", 3, True),
        ("--standalone x.py", 1, False),
        ("--standalone x.py", None, False),
        ("--standalone --nnodes 1 x.py", 3, False),
        ("--launcher local x.py", 3, False),
    ],
)
def test_note_says_that_standalone_leaves_nodes_idle(
    line: str, nodes: int | None, is_noted: bool, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchrun_options, "declared_nodes", lambda: nodes)
    note = "--standalone: only this node trains; leave it out to train on all 3 nodes"
    assert parse(line, environ).notes == ((note,) if is_noted else ())


def test_note_names_ignored_role_and_log_options(environ: dict[str, str]) -> None:
    assert parse("--role default x.py", environ).notes == ()
    assert parse("--role t -r 3 --tee=3 --log_dir logs x.py", environ).notes == (
        "ignored: --role t (every rank has the role default)",
        "ignored: --log-dir, --redirects, --tee (all output is shown, and kept on its node: see launch logs)",
    )


def test_local_ranks_filter_limits_the_shown_output_and_not_the_logs(cluster: LoopbackCluster) -> None:
    say = "echo $LOCAL_RANK; echo x >&2"
    result = cluster.run("-n", "2", "--nproc-per-node", "3", "--local-ranks-filter", "0,2", say)
    assert (result.code, [line.split("] ")[1] for line in result.lines]) == (0, ["0", "2"] * 2)
    assert result.stderr.count(b"x\n") == 4
    (kept,) = (cluster.directory / JOBS_DIR).glob("*/rank-1.log")
    assert kept.read_text() == "1\nx\n"


def test_hidden_ranks_failure_is_reported(cluster: LoopbackCluster) -> None:
    fail = "echo why; exit $((LOCAL_RANK * 3))"
    result = cluster.run("-n", "1", "--nproc-per-node", "2", "--local-ranks-filter", "0", fail)
    assert result.code == 3
    assert b"  | why\n" in result.stderr


def test_note_about_ignored_options_is_printed_once(cluster: LoopbackCluster) -> None:
    result = cluster.run("--nnodes=3", "--rdzv-id=7", "--no-python", "sh", "-c", "echo $WORLD_SIZE")
    assert (result.code, len(result.lines)) == (0, 3)
    expected = "launch: ignored: --rdzv-id (launch sets up the rendezvous, and starts every node)\n"
    assert result.stderr.decode() == expected


@pytest.mark.parametrize("count", [3, 1])
def test_range_of_nnodes_takes_the_available_hosts(tmp_path: Path, count: int) -> None:
    few = tmp_path / "few"
    few.write_text("".join(f"node{number}\n" for number in range(count)))
    assert slots("--nnodes 1:8 train.py", {PATH: str(few)}) == [1] * count


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nnodes 5 x.py", "--nnodes must be at most 4, the nodes currently in the cluster, got 5"),
        ("--nnodes 5:8 x.py", "--nnodes must be at most 4, the nodes currently in the cluster, got 5"),
        ("--nnodes 3:2 x.py", "--nnodes must be N or MIN:MAX with MIN at most MAX, got 3:2"),
        ("--nnodes 1: x.py", "--nnodes must be a whole number of at least 1, got ''"),
        ("--nnodes two x.py", "--nnodes must be a whole number of at least 1, got 'two'"),
        ("--nnodes 2 -n 2 x.py", "--nnodes cannot be combined with -n, which means the same"),
        (
            "--nnodes 1:2 --max-restarts 1 --min-nodes 1 x.py",
            "--nnodes 1:2 cannot be combined with --min-nodes, which means the same",
        ),
        ("--standalone --nnodes 2 x.py", "--nnodes must be 1 with --launcher local, got 2"),
        (
            "--standalone --launcher ssh x.py",
            "--standalone implies --launcher local and cannot be combined with --launcher ssh",
        ),
        ("-m --no-python x", "-m runs python and cannot be combined with --no-python"),
        ("-m", "no command given, as in: launch python train.py"),
        ("--rdzv-backend etcd x.py", "--rdzv-backend must be one of c10d, static, or left out, got 'etcd'"),
        ("--node_rank=1 x.py", "--node-rank must be 0 or left out, as one launch starts every node, got 1"),
        (
            "--rdzv_conf a=1 x.py",
            "--rdzv_conf is not supported: leave it out: --rejoin-timeout is the time to wait for missing nodes",
        ),
        ("--local-addr=1.2.3.4 x.py", "--local-addr is not supported: leave it out: launch derives addresses and"),
        ("--local-ranks-filter 0,x a.py", "--local-ranks-filter must be a whole number of at least 0, got 'x'"),
        (
            "--framework mxnet --local-ranks-filter 0 a.py",
            "--local-ranks-filter requires --framework torch or horovod, whose ranks launch starts itself",
        ),
        ("--use_env x.py", "--use_env is not supported: leave it out: ranks have LOCAL_RANK in any case"),
    ],
)
def test_torchrun_line_that_would_mean_another_job_is_refused(line: str, message: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line, environ)
    assert str(caught.value).startswith(message)


def test_every_torchrun_option_is_known(environ: dict[str, str]) -> None:
    from torch.distributed.run import get_args_parser

    def unknown(option: str) -> bool:
        try:
            parse(f"{option} 1 x.py", environ)
        except UsageError as error:
            return "unknown option" in str(error)
        return False

    options = [name for action in get_args_parser()._actions for name in action.option_strings]
    assert len(options) > 40
    assert [option for option in options if option not in ("-h", "--help") and unknown(option)] == []


def test_executable_script_runs_by_its_first_line(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text("#!/opt/venv/bin/python\n")
    assert parse("./train.py x", environ).command == ("python", "-u", "./train.py", "x")
    script.chmod(0o755)
    assert parse("./train.py x", environ).command == ("./train.py", "x")
    assert parse("train.py x", environ).command == ("python", "-u", "train.py", "x")
