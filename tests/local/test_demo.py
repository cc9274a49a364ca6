"""Test that ``make demo`` works for a newcomer, even after a killed one; neither leaves anything behind."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from local.demo import master_and_workers

REPOSITORY = Path(__file__).parents[2]

TIMEOUT_S = 400.0


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["make", "demo", "NODES=2"],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.usefixtures("clean_machine")
def test_demo_runs_after_a_killed_demo() -> None:
    killed = start()
    assert killed.stdout is not None
    while line := killed.stdout.readline():
        if "CREATE_IN_PROGRESS" in line:
            break
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=TIMEOUT_S)

    demo = start()
    printed, _ = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0, printed
    assert re.search(r"Validation-accuracy=0\.9[789]", printed)
    assert re.search(r"\d+\.\d s  cdk destroy\n", printed)


@pytest.mark.parametrize(
    ("nodes", "text"), [(1, "a master and 0 workers"), (2, "a master and 1 worker"), (3, "a master and 2 workers")]
)
def test_node_count_is_described_in_words(nodes: int, text: str) -> None:
    assert master_and_workers(nodes) == text
