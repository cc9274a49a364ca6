"""Test what dlcluster says of itself: the commands, their help, and what that costs."""

import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from cli.command_group import COMMANDS, module_name
from cli.main import main

PROGRAM = Path(__file__).parents[2] / "bin" / "dlcluster"
YARDSTICK = "import boto3"
"""Program that takes three times the CPU time of help, on a fast machine and on a slow one."""


def command_of(command: str) -> click.Command:
    loaded: click.Command = import_module(module_name(command)).command
    return loaded


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_commands_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    for command, text in COMMANDS.items():
        assert f"  {command:{max(map(len, COMMANDS)) + 2}}{text}\n" in out
    assert "3 no such cluster" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_of(command).name == command
    assert main([command, "--help"]) == 0
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert usage.startswith(f"Usage: dlcluster {command} [OPTIONS]")
    assert f"dlcluster {command}" in rest


@pytest.mark.parametrize(("command", "shown"), [("ssh", "[NODE] [-- COMMAND ...]"), ("run", "[--] COMMAND ...")])
def test_help_shows_where_a_command_goes(command: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: dlcluster {command} [OPTIONS] {shown}\n")


def test_help_and_completion_import_no_command() -> None:
    program = (
        "import sys; from cli.main import main; main([]); main(['--version']); "
        "print([name for name in sys.modules if name.startswith(('boto', 'rich', 'paramiko', 'cli.commands.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROGRAM.parents[1], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\n[]\n")


def cpu_s(*arguments: str | Path) -> float:
    """Return the minimum CPU time of three runs, which other load disturbs least."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_help_is_quick() -> None:
    cpu_s(PROGRAM, "--help")  # compiles
    assert cpu_s(PROGRAM, "--help") < cpu_s("-c", YARDSTICK)
