"""Check that nothing in the tree trusts an unknown host key."""

import contextlib
import re
from pathlib import Path

import pytest

from tests.tree import files_below

REPOSITORY = Path(__file__).parents[1]
NOT_OURS = {".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "cdk.out", "node_modules"}
UNCHECKED = re.compile(
    r"StrictHostKeyChecking\W+(no|off|ask|accept-new)\b|AutoAddPolicy|WarningPolicy|KnownHostsFile\W+/dev/null", re.I
)


def unchecked(text: str) -> list[str]:
    return [found.group() for found in UNCHECKED.finditer(text)]


def test_no_file_turns_host_key_checking_off() -> None:
    ours = [path for path in REPOSITORY.iterdir() if path.name not in NOT_OURS]
    files = [file for path in ours for file in (files_below(path) if path.is_dir() else [path])]
    found = {}
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # Another test has removed its own in the meantime.
            found[str(file)] = unchecked(file.read_bytes().decode(errors="replace"))
    del found[__file__]
    assert len(found) > 100
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "ssh -o StrictHostKeyChecking=no host",
        '"StrictHostKeyChecking": "accept-new"',
        "client.set_missing_host_key_policy(paramiko.AutoAddPolicy())",
        "UserKnownHostsFile /dev/null",
    ],
)
def test_ssh_options_without_host_key_checks_are_found(text: str) -> None:
    assert unchecked(text)
