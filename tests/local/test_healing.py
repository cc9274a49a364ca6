"""Test that a cluster heals on real nodes: lifecycle hooks, an address that moves, notices, a power cut."""

import subprocess
import sys

import pytest

from tests.leak_check import REPOSITORY

TIMEOUT_S = 400.0


@pytest.mark.usefixtures("clean_machine")
def test_group_of_one_heals_and_keeps_its_address() -> None:
    command = [sys.executable, "-m", "local", "run", "--", sys.executable, "-m", "tests.local.heal_one_node"]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout
