"""Test the file that hands a detached job from the shell to its unit."""

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.detached.request import DetachedJob

REPOSITORY = Path(__file__).parents[3]
TAKE = (
    "import sys; from pathlib import Path; from launcher.detached.request import DetachedJob; "
    "DetachedJob.take(Path(sys.argv[1])).enter();"
)


def request(monkeypatch: pytest.MonkeyPatch, cwd: Path) -> DetachedJob:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("SECRET", "s3\nünï")
    return DetachedJob.of_this_process(["--detach", "x y"], job_id="j", cwd=str(cwd))


def test_request_is_read_once_and_only_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, path = request(monkeypatch, tmp_path), tmp_path / "request"
    made.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DetachedJob.take(path) == made
    assert not path.exists()


def test_request_leaves_out_the_ssh_agent_of_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = request(monkeypatch, tmp_path).environment
    assert environment["SECRET"] == "s3\nünï"
    assert "SSH_AUTH_SOCK" not in environment


def test_enter_restores_the_shells_environment_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "request"
    made = request(monkeypatch, tmp_path)
    # More than an unprivileged process may have: it then gets its own maximum.
    made.limits["RLIMIT_NOFILE"] = 1 << 20
    made.limits["RLIMIT_CORE"] = 0
    made.write(path)
    show = f"{TAKE} import os, resource; print(os.getcwd(), os.environ['SECRET'], 'ODD' in os.environ,"
    show += " resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.getrlimit(resource.RLIMIT_CORE)[0])"
    most = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    printed = subprocess.run(
        ["bash", "-c", f'ulimit -n {most}; exec "$@"', "limited", sys.executable, "-c", show, str(path)],
        env={"PYTHONPATH": str(REPOSITORY), "ODD": "1", "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    assert printed == f"{tmp_path} s3\nünï False {most} 0\n"
