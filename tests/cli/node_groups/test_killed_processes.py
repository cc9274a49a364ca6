"""Kill real ``dlcluster`` processes with SIGKILL after each call that changes something; the next one completes it.

test_commands.py kills the commands at more points, but with an exception, after which Python still tidies up.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bootstrap.aws.group_sizes import PAUSED, ClusterSizes
from bootstrap.contract import MASTER, WORKER
from cli.main import main
from tests.cli.node_groups.killing_proxy import KillingProxy, killing_proxy
from tests.cli.node_groups.nodeless_cluster import DECLARED, NodelessCluster, hold, in_state

REPOSITORY = Path(__file__).parents[3]
UPDATE, END = "UpdateAutoScalingGroup", "TerminateInstanceInAutoScalingGroup"
PAUSE, RESUME = ["pause", "--yes"], ["resume"]


@pytest.fixture
def proxy(deployed: NodelessCluster) -> Iterator[KillingProxy]:
    with killing_proxy(deployed.aws.url, after_change=deployed.write_members) as proxy:
        yield proxy


def run(proxy: KillingProxy, words: Sequence[str], *, kill_at: int = 0) -> tuple[int, str]:
    """Run dlcluster as a process of its own; return its exit code and output."""
    proxy.expect_process(kill_at=kill_at)
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *words],
        env={**os.environ, "AWS_ENDPOINT_URL": proxy.url, "PYTHONPATH": str(REPOSITORY), "HOME": str(Path.cwd())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    proxy.set_process(process.pid)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.parametrize(
    ("words", "changes", "expected"),
    [(PAUSE, [UPDATE, UPDATE, END, END], {MASTER: PAUSED, WORKER: PAUSED}), (RESUME, [UPDATE, UPDATE], DECLARED)],
)
def test_rerun_completes_a_process_that_was_killed_after_any_change(
    deployed: NodelessCluster, proxy: KillingProxy, words: list[str], changes: list[str], expected: ClusterSizes
) -> None:
    for number in range(1, len(changes) + 1):
        begin(deployed, words)
        code, output = run(proxy, words, kill_at=number)
        assert (code, proxy.changes) == (-signal.SIGKILL, changes[:number]), output
        assert main(words) == 0
        assert deployed.sizes() == expected
        assert [*map(len, deployed.instances().values())] == [size.desired_capacity for size in expected.values()]
    # These were all its changes.
    begin(deployed, words)
    code, output = run(proxy, words)
    assert (code, proxy.changes) == (0, changes), output


def begin(deployed: NodelessCluster, words: list[str]) -> None:
    """Prepare what a command changes: for ``pause``, also workers that a size of zero does not end."""
    if words == RESUME:
        in_state(deployed, "paused")
        return
    deployed.set_sizes_directly(DECLARED)
    deployed.write_members()
    hold(deployed)
