"""Test what dlcluster says of itself: the verbs, their help, and what that costs."""

import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from cli.main import main
from cli.verb_group import VERBS, module_of

PROGRAM = Path(__file__).parents[2] / "bin" / "dlcluster"
YARDSTICK = "import boto3"
"""Program that takes three times the CPU time of help, on a fast machine and on a slow one."""


def command_of(verb: str) -> click.Command:
    command: click.Command = import_module(module_of(verb)).command
    return command


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_verbs_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    for verb, text in VERBS.items():
        assert f"  {verb:{max(map(len, VERBS)) + 2}}{text}\n" in out
    assert "3 no such cluster" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_of(verb).name == verb
    assert main([verb, "--help"]) == 0
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert usage.startswith(f"Usage: dlcluster {verb} [OPTIONS]")
    assert f"dlcluster {verb}" in rest


@pytest.mark.parametrize(("verb", "shown"), [("ssh", "[NODE] [-- COMMAND ...]"), ("run", "[--] COMMAND ...")])
def test_help_shows_where_a_command_goes(verb: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: dlcluster {verb} [OPTIONS] {shown}\n")


def test_help_and_completion_import_no_verb() -> None:
    program = (
        "import sys; from cli.main import main; main([]); main(['--version']); "
        "print([name for name in sys.modules if name.startswith(('boto', 'rich', 'paramiko', 'cli.verbs.'))])"
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
