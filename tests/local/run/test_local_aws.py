"""Enter a run whose checkout changes outside."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.run.local_aws import LocalAws
from tests.local.terminal import Terminal

MOUNT = """
mount -n -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work"
mount -n -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$2"
cd "$2" && cat cdk.json own && echo inside > own && exec cat
"""
BASHRC = Path(__file__).parents[3] / "local/bashrc"


def replace(path: Path, text: str) -> None:
    """Write a file as editors do: a new one takes the old one's place."""
    partial = path.with_suffix(".new")
    partial.write_text(text)
    partial.replace(path)


@pytest.fixture
def local_aws(tmp_path: Path) -> Iterator[LocalAws]:
    """Mount an overlay over a checkout, as a sandbox does, in a mount namespace of its own."""
    checkout, layers = tmp_path / "with space", tmp_path / "layers"
    for made in (checkout, layers):
        made.mkdir()
    for name in ("cdk.json", "own"):
        (checkout / name).write_text("first\n")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", MOUNT, "sh", str(layers), str(checkout)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdin is not None
        assert sandbox.stdout is not None
        assert [sandbox.stdout.readline() for _ in range(2)] == ["first\n"] * 2
        sandbox.stdin.write("mounted\n")
        sandbox.stdin.flush()
        assert sandbox.stdout.readline() == "mounted\n"
        variables = {"LOCAL_AWS_DIR": str(layers)}
        yield LocalAws(directory=layers, owner_pid=0, sandbox_pid=sandbox.pid, checkout=checkout, variables=variables)
        sandbox.stdin.close()


def test_command_sees_a_file_that_was_replaced_outside_and_the_runs_own_changes(local_aws: LocalAws) -> None:
    for name in ("cdk.json", "own"):
        replace(local_aws.checkout / name, "second\n")
    (local_aws.checkout / "new").write_text("third\n")
    entered = subprocess.run(
        local_aws.command_inside(["cat", "cdk.json", "own", "new"]), capture_output=True, text=True, check=False
    )
    assert (entered.stdout, entered.stderr) == ("second\ninside\nthird\n", "")


def test_next_command_of_a_shell_sees_it_too(local_aws: LocalAws) -> None:
    shell = local_aws.command_inside(["bash", "--noprofile", "--rcfile", str(BASHRC), "-i"])
    terminal = Terminal(shell, directory=local_aws.checkout, environment=local_aws.environment(os.environ))
    terminal.type("cat cdk.json; false\n")
    terminal.expect("first\n")
    replace(local_aws.checkout / "cdk.json", "second\n")
    terminal.type("echo code $?; cat cdk.json\n")
    terminal.expect("code 1\nsecond\n")
    terminal.type("exit\n")
    terminal.wait_for_end()
