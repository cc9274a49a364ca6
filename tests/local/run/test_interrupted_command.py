"""Test what Ctrl-C on a terminal does to a command inside a running local AWS."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.leak_check import REPOSITORY
from tests.local.terminal import CTRL_C, Terminal

ENTER = """
import os, pathlib, sys
from local.run.interactive import enter_running
from local.run.local_aws import LocalAws
here = LocalAws(directory=pathlib.Path(sys.argv[1]), owner_pid=os.getpid(), sandbox_pid=os.getpid(),
                checkout=pathlib.Path(sys.argv[1]), variables={})
print("code", enter_running(here, sys.argv[2:]))
"""
"""Program that enters its own namespaces in place of those of a local AWS, and prints the command's exit code."""


@contextmanager
def entered(directory: Path, script: str) -> Iterator[Terminal]:
    """Yield the terminal of a script that has begun."""
    terminal = Terminal([sys.executable, "-c", ENTER, str(directory), "bash", "-c", script], directory=REPOSITORY)
    terminal.expect("begun\n", timeout_s=20)
    yield terminal
    terminal.close()


def test_command_that_asks_after_an_interrupt_gets_its_answer(tmp_path: Path) -> None:
    asks = "trap 'read -r answer; sleep 0.5; echo is $answer; exit 130' INT; echo begun; sleep 60 & wait"
    with entered(tmp_path, asks) as terminal:
        terminal.type(CTRL_C)
        terminal.type("stopped\n")
        terminal.expect("is stopped\n", timeout_s=20)
        terminal.expect("code 130\n", timeout_s=20)


@pytest.mark.parametrize("script", ["echo begun; exec sleep 60", "echo begun; sleep 60"])
def test_command_without_a_handler_ends(tmp_path: Path, script: str) -> None:
    with entered(tmp_path, script) as terminal:
        terminal.type(CTRL_C)
        terminal.expect("code 130\n", timeout_s=20)
