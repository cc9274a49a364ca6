"""Test the hints for commands that cannot be run."""

import pytest

from launcher.job.exit_hints import exit_hint
from tests.launcher.loopback_cluster import LoopbackCluster

LINE = ("/bin/bash", "-c")


@pytest.mark.parametrize(
    ("code", "command", "output"),
    [
        (127, (*LINE, "lst"), ": no command lst, did you mean launch list?"),
        (127, ("stat-us", "j"), ": no command stat-us, did you mean launch status?"),
        (127, (*LINE, "ls-files"), ": no command ls-files: the setting setup installs programs on every node"),
        (127, ("bash", "job.sh", "--lr", "1"), ": job.sh, or a command in it, was not found"),
        (127, (*LINE, "/bin/sh -e job.sh"), ": job.sh, or a command in it, was not found"),
        (127, ("./job.sh",), ": ./job.sh, or a command in it, was not found"),
        (127, ("bash", "-lc", "lst --lr 1"), ": bash, or a command in it, was not found"),
        (127, (*LINE, "true; lst"), ""),
        (127, (*LINE, "'"), ""),
        (126, ("/opt/t", "--lr", "1"), ": if Python is to run /opt/t: launch python /opt/t"),
        (126, ("python", "x.py"), ""),
        (1, (*LINE, "lst"), ""),
        (137, ("python", "x.py"), ": killed (SIGKILL), often out of memory"),
        (
            134,
            ("python", "x.py"),
            ": aborted (SIGABRT), often a failed check in native code or NCCL's watchdog",
        ),
        (135, ("python", "x.py"), ": bus error (SIGBUS), often a full /dev/shm"),
        (139, (*LINE, "x"), ": segmentation fault (SIGSEGV), a crash in native code"),
        (143, ("python", "x.py"), ""),
    ],
)
def test_hints_are_given_only_for_unclear_exit_codes(code: int, command: tuple[str, ...], output: str) -> None:
    assert exit_hint(code, command) == output


def test_missing_module_names_the_setting() -> None:
    tail = [b"Traceback (most recent call last):", b"ModuleNotFoundError: No module named 'humanize.time'"]
    hint = ": no module humanize: the setting requirements installs packages on every node"
    assert exit_hint(1, ("python", "x.py"), tail) == hint
    assert exit_hint(1, ("python", "x.py"), tail[:1]) == ""


def test_missing_pip_is_answered_with_pythons() -> None:
    line = "launch --nproc-per-node 1 python -m pip install ..."
    for name in ("pip", "pip3"):
        hint = f": no command {name}: {line}, or the setting requirements, which lasts"
        assert exit_hint(127, (name, "install", "pandas")) == exit_hint(127, (*LINE, f"{name} install x")) == hint
    assert "setup" in exit_hint(127, ("pipenv", "install"))


def test_other_tools_variable_is_answered_with_ours() -> None:
    tail = [b"Traceback (most recent call last):", b"KeyError: 'SKYPILOT_NODE_RANK'"]
    hint = ": SKYPILOT_NODE_RANK is another tool's variable: launch sets torchrun's (RANK, WORLD_SIZE, GROUP_RANK, ...)"
    assert exit_hint(1, ("python", "x.py"), tail) == hint
    assert exit_hint(1, ("python", "x.py"), [b"KeyError: 'MY_RANK'"]) == ""


def test_directory_and_a_misspelled_subcommand_get_hints(cluster: LoopbackCluster) -> None:
    directory = cluster.run("-n", "1", str(cluster.directory))
    assert directory.code == 126
    assert directory.reason.endswith(f"126: if Python is to run {cluster.directory}: launch python {cluster.directory}")
    slip = cluster.run("-n", "1", "lst")
    assert slip.code == 127
    assert slip.reason.endswith(" ended with exit code 127: no command lst, did you mean launch list?")
