"""Test that the user of a local AWS is informed of failures while a deploy waits."""

import subprocess
import sys
from pathlib import Path

import pytest

from local.commands import status
from local.data_plane.launch_failures import write_failure
from local.run.monitor import Monitor


@pytest.fixture
def warnings() -> list[str]:
    return []


def test_instance_that_does_not_boot_is_named_once_with_the_reason(tmp_path: Path, warnings: list[str]) -> None:
    monitor = Monitor(tmp_path, programs={}, warn=warnings.append)
    monitor.check()
    write_failure(tmp_path, "i-1", "mount: no such device")
    monitor.check()
    monitor.check()
    assert warnings == ["warning: i-1 does not boot in the local AWS and is terminated: mount: no such device"]
    assert status.launch_failure_lines(tmp_path) == "i-1 did not boot and was terminated: mount: no such device\n"


@pytest.mark.parametrize(("log", "cause"), [("Traceback:\nKeyError: 'x'\n", "KeyError: 'x'"), ("", "its log is empty")])
def test_ended_program_of_the_local_aws_is_reported(tmp_path: Path, warnings: list[str], log: str, cause: str) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log/local.data_plane.log").write_text(log)
    with subprocess.Popen([sys.executable, "-c", "input(); exit(3)"], stdin=subprocess.PIPE) as program:
        monitor = Monitor(tmp_path, programs={"local.data_plane": program}, warn=warnings.append)
        monitor.check()
        assert warnings == []
        program.communicate(b"\n")
        monitor.check()
        monitor.check()
    assert warnings == [
        "error: the local AWS's local.data_plane exited with code 3: nodes no longer start or stop: " + cause
    ]
