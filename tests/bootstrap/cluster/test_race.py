"""Race processes that all claim a node index: ten rounds, or RACES rounds in ``make soak``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROCESSES = 30
ROUNDS = int(os.environ.get("RACES", "10"))


@pytest.mark.allow_subprocess
def test_thirty_processes_claim_node_indexes_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bootstrap.index_claims", str(PROCESSES), str(ROUNDS)],
        cwd=Path(__file__).parents[3],
        env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == ROUNDS
    for round_ in rounds:
        # No index is used twice and none is lost: each process's result is in the table in the end.
        assert sorted(round_["claimed"].values()) == list(range(2, PROCESSES + 2))
        assert round_["members"] == round_["claimed"]
        assert round_["generation"] == PROCESSES
    # The writers did collide: had they run one after the other, they would have proven nothing.
    assert sum(round_["lost"] for round_ in rounds) > 10 * ROUNDS
