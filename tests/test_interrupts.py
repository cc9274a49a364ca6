"""Test that programs started by tests can be interrupted, even if the tests run in the background of a shell."""

import signal
import subprocess
import sys
from pathlib import Path


def test_program_can_be_interrupted() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == -signal.SIGINT
        finally:
            process.kill()


def test_program_can_be_interrupted_when_the_tests_run_in_the_background() -> None:
    test = f"{Path(__file__)}::{test_program_can_be_interrupted.__name__}"
    command = ["env", "--ignore-signal=INT", sys.executable, "-m", "pytest", test]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout
