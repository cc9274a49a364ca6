"""Test that nothing of any earlier job is left on the nodes; runs after all other tests."""

import time
from collections import Counter

import pytest

from tests.frameworks.mxnet_cluster import WORKERS, MxnetCluster


@pytest.mark.parametrize("alias", WORKERS)
def test_nothing_of_any_job_is_left(cluster: MxnetCluster, alias: str) -> None:
    # End the processes that wait for the next launch.
    cluster.on_master("launch close")
    until = time.monotonic() + 120
    # The last session's sshd ends a little later than its launch.
    while left := Counter(cluster.processes(alias)) - Counter(cluster.before[alias]):
        assert time.monotonic() < until, left
        time.sleep(0.5)
