"""Test what the trainer concludes from the variables of each launcher."""

import subprocess
import sys

import pytest

from tests.trainer.programs.processes import REPOSITORY
from trainer.config.settings import TrainConfig
from trainer.distributed.launcher_check import check_launcher, choose_kv_store, is_server
from trainer.errors import UsageError


@pytest.mark.parametrize(
    ("framework", "environment"),
    [
        ("torch", {}),
        ("mxnet", {}),
        ("torch", {"WORLD_SIZE": "8"}),
        ("mxnet", {"DMLC_ROLE": "worker"}),
        ("horovod", {"HOROVOD_SIZE": "2"}),
        ("horovod", {"OMPI_COMM_WORLD_SIZE": "2", "WORLD_SIZE": "2"}),
        ("mxnet", {"WORLD_SIZE": "1", "HOROVOD_SIZE": ""}),
    ],
)
def test_framework_runs_alone_or_in_ranks_of_its_own_launcher(framework: str, environment: dict[str, str]) -> None:
    check_launcher(framework, environment)


@pytest.mark.parametrize(
    ("framework", "kv_store", "environment", "store"),
    [
        ("torch", None, {"WORLD_SIZE": "8"}, "dist_sync"),
        ("torch", None, {"WORLD_SIZE": "1"}, "device"),
        ("torch", None, {}, "device"),
        ("torch", "device", {"WORLD_SIZE": "8"}, "device"),
        ("mxnet", None, {"DMLC_NUM_WORKER": "2"}, "dist_sync"),
        ("mxnet", "dist_async", {"DMLC_NUM_WORKER": "2"}, "dist_async"),
        ("horovod", None, {"HOROVOD_SIZE": "2"}, "horovod"),
    ],
)
def test_several_processes_default_to_dist_sync(
    framework: str, kv_store: str | None, environment: dict[str, str], store: str
) -> None:
    assert choose_kv_store(TrainConfig(framework=framework, kv_store=kv_store), environment).effective_kv_store == store


@pytest.mark.parametrize(
    ("framework", "environment", "found"),
    [
        ("torch", {"DMLC_ROLE": "worker"}, "`launch --framework mxnet` (DMLC_ROLE is worker)"),
        ("horovod", {"WORLD_SIZE": "3"}, "`launch --framework torch` (WORLD_SIZE is 3)"),
        ("mxnet", {"OMPI_COMM_WORLD_SIZE": "2"}, "`launch --framework horovod` (OMPI_COMM_WORLD_SIZE is 2)"),
    ],
)
def test_ranks_of_another_framework_are_reported(framework: str, environment: dict[str, str], found: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_launcher(framework, environment)
    assert (
        str(caught.value) == f"--framework {framework} needs `launch --framework {framework}`, got processes of {found}"
    )


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_server_and_scheduler_are_servers(role: str) -> None:
    assert is_server({"DMLC_ROLE": role})


@pytest.mark.parametrize("environment", [{}, {"DMLC_ROLE": "worker"}])
def test_worker_is_not_a_server(environment: dict[str, str]) -> None:
    assert not is_server(environment)


@pytest.mark.parametrize(("framework", "package"), [("mxnet", "mxnet"), ("horovod", "mxnet")])
def test_missing_package_of_the_framework_is_reported(framework: str, package: str) -> None:
    command = [sys.executable, "-m", "trainer", "--framework", framework]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert result.stdout == ""
    message = (
        f"trainer: {package} is not installed in this Python ({sys.executable}); use `launch --framework {framework}`"
    )
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
