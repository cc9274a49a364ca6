"""Test jobs on nodes that have, or lack, the MXNet environment of the setting ``frameworks``."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster, change_constants, copy_launcher


@pytest.fixture
def cluster_with(cluster: LoopbackCluster, tmp_path: Path) -> Callable[[list[str]], LoopbackCluster]:
    """Create a cluster whose launcher takes these machines for nodes with these frameworks."""

    def make(frameworks: list[str]) -> LoopbackCluster:
        root, config = tmp_path / "opt", tmp_path / "node.json"
        launcher = copy_launcher(tmp_path / "release")
        paths = {"PRODUCT_DIR": str(root), "NODE_CONFIG_FILE": str(config)}
        change_constants(launcher, {f"../bootstrap/contract.{name}": path for name, path in paths.items()})
        config.write_text("{}")
        if frameworks:
            programs = root / "mxnet/current/bin"
            programs.mkdir(parents=True)
            for name in ("python", "mpirun"):
                (programs / name).write_text(f'#!/bin/sh\necho "{name} of the environment"\n')
                (programs / name).chmod(0o755)
            (root / "mxnet/current/frameworks").write_text("".join(f"{framework}\n" for framework in frameworks))
        return replace(cluster, launcher=launcher)

    return make


@pytest.mark.parametrize(
    ("arguments", "framework"),
    [
        (["-s", "1", "python", "train.py"], "mxnet"),
        (["-s", "1", "A=1 python train.py"], "mxnet"),
        (["-s", "1", "A=1", "python train.py"], "mxnet"),
        (["--framework", "horovod", "env", "python3", "train.py"], "horovod"),
        (["--launcher", "mpi", "/bin/true"], "horovod"),
    ],
)
def test_nothing_starts_when_nodes_lack_the_framework(
    cluster_with: Callable[[list[str]], LoopbackCluster], arguments: list[str], framework: str
) -> None:
    result = cluster_with([]).run(*arguments)
    assert (result.code, result.stdout) == (1, b"")
    assert result.stderr.decode() == (
        f"launch: nothing started: no {framework} on {ADDRESSES[0]} and 2 more: nodes get it from the setting "
        f"frameworks={framework} when they are made; or name your own Python by its path\n"
    )


def test_environment_without_the_jobs_framework_is_reported(
    cluster_with: Callable[[list[str]], LoopbackCluster],
) -> None:
    result = cluster_with(["mxnet"]).run("-n", "1", "--framework", "horovod", "python", "train.py")
    assert result.code == 1
    assert result.reason.startswith(f"launch: nothing started: no horovod on {ADDRESSES[0]}: nodes get it")


@pytest.mark.parametrize("arguments", [["-s", "1"], ["--framework", "horovod"]])
def test_python_is_the_one_of_the_mxnet_environment(
    cluster_with: Callable[[list[str]], LoopbackCluster], arguments: list[str]
) -> None:
    result = cluster_with(["mxnet", "horovod"]).run(*arguments, "python", "train.py")
    assert result.code == 0
    output = {line.partition("] ")[2] for line in result.lines}
    assert output == {"python of the environment"}


def test_mpirun_is_the_one_of_the_mxnet_environment(
    cluster_with: Callable[[list[str]], LoopbackCluster],
) -> None:
    result = cluster_with(["mxnet", "horovod"]).run("-n", "1", "--launcher", "mpi", "python", "train.py")
    assert result.lines == [f"{ADDRESSES[0]} [mpirun] mpirun of the environment"]


def test_pytorch_job_needs_no_mxnet_environment(cluster_with: Callable[[list[str]], LoopbackCluster]) -> None:
    result = cluster_with(["mxnet"]).run("python", "-c", "print('another')")
    assert result.code == 0
    assert {line.partition("] ")[2] for line in result.lines} == {"another"}


def test_command_with_its_own_python_needs_no_mxnet_environment(
    cluster_with: Callable[[list[str]], LoopbackCluster],
) -> None:
    result = cluster_with([]).run("-n", "2", "-s", "1", "/bin/echo", "mine")
    assert result.code == 0
    assert {line.partition("] ")[2] for line in result.lines} == {"mine"}


def make_python(venv: Path) -> Path:
    program = venv / "bin/python"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$VIRTUAL_ENV"\n')
    program.chmod(0o755)
    return venv


def test_python_comes_from_the_named_environment(cluster: LoopbackCluster, tmp_path: Path) -> None:
    venv = make_python(tmp_path / "mine")
    result = cluster.run("--venv", str(venv), "train.py")
    assert (result.code, {line.partition("] ")[2] for line in result.lines}) == (0, {str(venv)})


def test_missing_environment_is_reported_before_any_rank_starts(cluster: LoopbackCluster, tmp_path: Path) -> None:
    result = cluster.run("--venv", str(tmp_path / "none"), "train.py")
    assert (result.code, result.stdout) == (1, b"")
    assert result.stderr.decode() == (
        f"launch: nothing started: no {tmp_path}/none/bin/python on {ADDRESSES[0]} and 2 more: make it on every node "
        "(setup)\n"
    )
