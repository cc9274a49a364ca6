"""Test which variables of the launcher's shell reach the processes on its own machine."""

import subprocess
import sys
from pathlib import Path

from launcher.job.login_environment import session_environment
from tests.launcher.loopback_cluster import ADDRESSES, LAUNCHER, LoopbackCluster


def test_session_has_sshds_variables_and_those_of_etc_environment(tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_text("# all\nPATH=/bin\nexport DEEPLEARNING_BUCKET=b\n")
    shell = {"HOME": "/h", "PATH": "/mine", "LC_ALL": "C", "DEEPLEARNING_BUCKET": "b", "NCCL_PROTO": "Simple"}
    assert session_environment(shell, file) == {name: shell[name] for name in shell if name != "NCCL_PROTO"}
    assert session_environment(shell, tmp_path / "none").keys() == {"HOME", "PATH", "LC_ALL"}


def test_all_ranks_get_the_same_variables_of_the_launchers_shell(cluster: LoopbackCluster) -> None:
    show = "echo ${NCCL_PROTO-none} ${HF_TOKEN-none}"
    shell = {"NCCL_PROTO": "Simple", "HF_TOKEN": "secret"}
    result = cluster.run("--env", "NCCL_PROTO", show, environment=shell)
    assert result.lines == [f"{host} [0] Simple none" for host in ADDRESSES]


def test_local_job_gets_all_variables_of_the_shell(cluster: LoopbackCluster) -> None:
    launch = [sys.executable, str(LAUNCHER), "--launcher", "local", "echo ${NCCL_PROTO-none}"]
    environment = cluster.environment | {"NCCL_PROTO": "Simple"}
    ended = subprocess.run(launch, env=environment, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"localhost [0] Simple\n")
