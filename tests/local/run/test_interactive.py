"""Use a local AWS by hand, on a terminal."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from local.__main__ import _act, _parse
from local.run.interactive import first_steps
from local.run.local_aws import LocalAws, list_local_aws
from local.run.sandbox import sweep
from tests.leak_check import REPOSITORY, Snapshot
from tests.local.terminal import CTRL_C, CTRL_D, CTRL_Z, Terminal

LOCAL = (sys.executable, "-m", "local")
PROMPT = r"\[local-aws \w+\] .+ # $"
TIMEOUT_S = 120.0
SLEEP = "sh -c 'echo begun; exec sleep 300'"
"""Command that announces when it runs in the terminal's foreground."""
KEEP = (sys.executable, "-c", "import sys; from local.run.interactive import keep; sys.exit(keep(sys.argv[1:]))")


def local(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOCAL, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )


def kept(command: Sequence[str] = ("true",)) -> LocalAws:
    """Keep a local AWS that a command left running on a terminal which is hung up afterwards."""
    terminal = Terminal([*KEEP, *command], directory=REPOSITORY)
    name = terminal.expect(r"make end RUN=(\w+)")[1]
    assert terminal.wait_for_end() == 0
    terminal.close()
    return next(local_aws for local_aws in list_local_aws() if local_aws.name == name)


@pytest.fixture
def local_aws(clean_machine: Snapshot) -> Iterator[LocalAws]:
    """Keep a local AWS; end it after the test if it is still running."""
    assert clean_machine
    local_aws = kept()
    yield local_aws
    local("end", local_aws.name)


def wait_for_end(local_aws: LocalAws) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while local_aws.directory.exists():
        assert time.monotonic() < deadline, f"waited {TIMEOUT_S} s for {local_aws.name} to end"
        time.sleep(0.05)


@pytest.fixture
def shell(clean_machine: Snapshot) -> Iterator[Terminal]:
    """Run a script that starts `python -m local shell` on its terminal and then reports the terminal's state."""
    assert clean_machine
    script = '"$@"; echo "code $?"; stty -a | grep -o "[-]*echo "; read -r line; echo "read $line"'
    terminal = Terminal(["bash", "-c", script, "script", *LOCAL, "shell"], directory=REPOSITORY)
    terminal.expect(PROMPT)
    yield terminal
    terminal.close()


def test_prompt_works_in_a_directory_with_a_space() -> None:
    assert re.search(PROMPT, "[local-aws 3f2a0b1c] /tmp/with space/clone # ")


def test_shell_has_the_users_commands_and_variables(shell: Terminal) -> None:
    shell.type("ssh-add -l; local-aws status; echo ~root $HOME\n")
    shell.expect(r"demo \(ED25519\)")
    shell.expect("no instances")
    assert len(set(shell.expect(r"(/\S+/home) (/\S+/home)\n").groups())) == 1
    shell.type("aws --version; aws ec2 describe-key-pairs --query 'KeyPairs[].KeyName' --output text\n")
    shell.expect(r"aws-cli/1\.\S+ ")
    shell.expect("\ndemo\n")
    shell.expect(PROMPT)
    shell.type(CTRL_D)
    shell.expect("code 0")


def test_signal_keys_reach_only_the_command(shell: Terminal) -> None:
    shell.type(f"{SLEEP}\n")
    shell.expect("begun\n")
    shell.type(CTRL_C)
    shell.expect(PROMPT)
    shell.type(f"echo code $?; {SLEEP}\n")
    shell.expect("code 130\n")
    shell.expect("begun\n")
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    shell.type("kill %1; wait; local-aws status\n")
    shell.expect("no instances")
    shell.type("exit\n")
    shell.expect("code 0")


def test_script_has_its_terminal_back_after_a_shell(shell: Terminal) -> None:
    shell.type("stty -echo; exit 3\n")
    shell.expect("code 0")
    shell.expect("\necho ")
    assert shell.foreground_is_leader()
    shell.type("a line\n")
    shell.expect("read a line")
    assert shell.wait_for_end() == 0


def test_local_aws_that_ends_under_a_shell_gives_the_terminal_back(shell: Terminal) -> None:
    local_aws = list_local_aws()[-1]
    os.kill(local_aws.owner_pid, signal.SIGKILL)
    shell.expect(f"error: local AWS {local_aws.name} has ended\n")
    shell.expect("code 1")
    assert shell.foreground_is_leader()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.usefixtures("clean_machine")
def test_nothing_is_left_when_the_starter_of_a_shell_is_killed(signum: signal.Signals) -> None:
    terminal = Terminal([*LOCAL, "shell"], directory=REPOSITORY)
    terminal.expect(PROMPT)
    local_aws = list_local_aws()[-1]
    terminal.kill(signum)
    assert terminal.wait_for_end() == 128 + signum
    terminal.close()
    wait_for_end(local_aws)


def test_kept_run_outlives_its_terminal_and_is_not_removed(local_aws: LocalAws) -> None:
    sweep()
    assert local("enter", local_aws.name[:5], "--", "ssh-add", "-l").stdout.endswith("demo (ED25519)\n")
    assert local("status").stdout == f"local AWS {local_aws.name}\nno instances\n"
    assert local("enter", local_aws.name, "--", "sh", "-c", "exit 7").returncode == 7
    assert local("end", local_aws.name).returncode == 0
    assert not local_aws.directory.exists()


def test_file_written_inside_exists_only_in_that_run(local_aws: LocalAws) -> None:
    local("enter", local_aws.name, "--", "sh", "-c", "echo text > written-by-hand")
    assert local("enter", local_aws.name, "--", "cat", "written-by-hand").stdout == "text\n"
    assert not (REPOSITORY / "written-by-hand").exists()


def test_kept_run_stays_up_when_its_shell_exits(local_aws: LocalAws) -> None:
    terminal = Terminal([*LOCAL, "enter", local_aws.name], directory=REPOSITORY)
    terminal.expect(PROMPT)
    terminal.type("exit\n")
    assert terminal.wait_for_end() == 0
    terminal.close()
    assert local_aws.directory.exists()


def test_nothing_is_left_when_the_owner_of_a_kept_run_is_killed(local_aws: LocalAws) -> None:
    os.kill(local_aws.owner_pid, signal.SIGKILL)
    wait_for_end(local_aws)


def test_several_runs_require_a_name(local_aws: LocalAws) -> None:
    second = kept()
    refused = local("end")
    assert (refused.returncode, refused.stdout) == (2, "")
    problem = f"several runs of the local AWS are up, name one (RUN=NAME with make): {local_aws.name}, {second.name}"
    assert refused.stderr == f"error: {problem}\n"
    assert local("end", second.name).returncode == 0
    assert local_aws.directory.exists()
    assert not second.directory.exists()


def test_greeting_names_settings_that_take_precedence() -> None:
    local_aws = LocalAws(directory=Path("/run/3f2a"), owner_pid=1, sandbox_pid=1, checkout=REPOSITORY, variables={})
    assert 'before those in cdk.json\'s "cluster" object; -c name=value comes before both.' in first_steps(local_aws)


@pytest.mark.usefixtures("clean_machine")
def test_interrupt_of_a_kept_runs_command_ends_the_run() -> None:
    terminal = Terminal([*KEEP, "sh", "-c", "echo begun; sleep 300"], directory=REPOSITORY)
    name = terminal.expect(r"local AWS (\w+) is up")[1]
    terminal.expect("begun")
    terminal.type(CTRL_C)
    terminal.wait_for_end()
    terminal.close()
    assert name not in [local_aws.name for local_aws in list_local_aws()]


@pytest.mark.usefixtures("clean_machine")
def test_kept_run_stays_up_when_its_command_fails() -> None:
    terminal = Terminal([*KEEP, "false"], directory=REPOSITORY)
    name = terminal.expect(r"make end RUN=(\w+)")[1]
    assert terminal.wait_for_end() == 1
    terminal.close()
    assert local("end", name).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("enter", "zzz"), "error: no unique match for 'zzz'; running: "),
        (("demo", "abc"), "error: NODES must be a whole number, at least 1, got 'abc'\n"),
        (("fault", "undo-all"), "error: fault works inside a local AWS only: make enter, then local-aws fault\n"),
        (("explode",), "error: argument subcommand: invalid choice: 'explode' (choose from "),
        (("demo", "0"), "error: NODES must be a whole number, at least 1, got '0'\n"),
    ],
)
def test_error_is_one_line_and_exit_code_2(arguments: tuple[str, ...], line: str) -> None:
    result = local(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("options", "called"), [((), "shell"), (("--keep",), "keep true")])
def test_shell_that_is_kept_opens_none(options: tuple[str, ...], called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("local.__main__.image_layers", list)
    monkeypatch.setattr("local.run.interactive.shell", lambda: calls.append("shell"))
    monkeypatch.setattr("local.run.interactive.keep", lambda command: calls.append(f"keep {' '.join(command)}"))
    _act(_parse(["shell", *options], inside=None))
    assert calls == [called]


@pytest.mark.parametrize("target", ["demo", "local-aws"])
def test_keep_reaches_the_command(target: str) -> None:
    def recipe(*variables: str) -> str:
        return subprocess.check_output(["make", "-n", target, *variables], cwd=REPOSITORY, text=True)

    assert "--keep" in recipe("KEEP=1")
    assert "--keep" not in recipe()
    for no in ("0", "no", "false"):
        assert "--keep" not in recipe(f"KEEP={no}")


@pytest.mark.parametrize(
    ("subcommand", "usage"),
    [("enter", "enter [-h] [RUN] [-- COMMAND ...]\n"), ("run", "run [-h] [--mxnet] -- COMMAND ...\n")],
)
def test_help_outside_names_the_command_to_run(subcommand: str, usage: str) -> None:
    command = [sys.executable, "-m", "local", subcommand, "--help"]
    assert subprocess.check_output(command, cwd=REPOSITORY, text=True).startswith(f"usage: python -m local {usage}")


def test_end_lists_ended_runs_or_reports_none(local_aws: LocalAws, tmp_path: Path) -> None:
    ended = local("end")
    assert (ended.returncode, ended.stdout) == (0, f"local AWS {local_aws.name} has ended\n")
    nothing = subprocess.run(
        [*LOCAL, "end"],
        cwd=REPOSITORY,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "no local AWS is up\n", "")
