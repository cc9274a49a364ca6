"""Test that files identify processes, even after the system reuses an id, and how processes end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.errors import LocalError
from local.run.processes import read_process, record_process, wait_for_exit
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[3]
PARENT = """
import subprocess, sys
from pathlib import Path
from local.run.processes import die_with_parent, record_process
child = subprocess.Popen(["sleep", "60"], preexec_fn=die_with_parent)
record_process(Path(sys.argv[1]), child.pid)
print(flush=True)
child.wait()
"""
"""Program that starts a child, records it in a file, and prints a line."""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_running_process_is_found(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    record_process(tmp_path / "owner", process.pid)
    assert read_process(tmp_path / "owner") == process.pid


def test_process_has_ended_before_its_parent_notices(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    record_process(tmp_path / "owner", process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_process(tmp_path / "owner") is None


def test_reused_process_id_is_another_process(tmp_path: Path) -> None:
    (tmp_path / "owner").write_text(f"{os.getpid()} 1")
    assert read_process(tmp_path / "owner") is None


@pytest.mark.parametrize("text", ["", "12", "a b", "1 2 3"])
def test_file_without_process_id_means_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "owner").write_text(text)
    assert read_process(tmp_path / "owner") is None


def test_fails_in_plain_words_when_a_local_aws_ends_slowly(process: subprocess.Popen[bytes]) -> None:
    with pytest.raises(
        LocalError, match=r"^waited 0 s for the local AWS to end; it is still shutting down in the background"
    ):
        wait_for_exit(process, timeout_s=0.01)
    assert process.poll() is None
    process.kill()
    wait_for_exit(process, timeout_s=10)


def test_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "child")], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"\n"
    child = read_process(tmp_path / "child")
    assert child is not None
    parent.kill()
    parent.wait()
    try:
        wait_until(lambda: read_process(tmp_path / "child") is None, "the child's end", timeout_s=10, every_s=0.01)
    finally:
        if read_process(tmp_path / "child"):
            os.kill(child, signal.SIGKILL)
