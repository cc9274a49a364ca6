"""Run the examples for Accelerate and Lightning, and Accelerate's own test, on two nodes.

``make soak`` runs it: packages.py needs the internet once, and the local AWS has none.
"""

import re
from pathlib import Path

import pytest

from tests.e2e.support.deployed_cluster import DeployedCluster, aliases
from tests.waiting import wait_until

MASTER = "deeplearning-master"
MOUNT_S = 120.0
STATE = "cat /run/deeplearning/shared-state"
pytestmark = pytest.mark.soak


@pytest.mark.parametrize("script", ["accelerate_digits.py", "lightning_digits.py"])
def test_example_trains_one_model_on_two_nodes(cluster_with_packages: DeployedCluster, script: str) -> None:
    line = f"cd examples && launch -n 2 --venv frameworks --sync-dst-dir {Path(script).stem} {script} 2>&1 || true"
    said = cluster_with_packages.on(MASTER, line)
    accuracies = dict(re.findall(r"^deeplearning-worker(\d) \[0\] rank \d/2 accuracy=(\S+)$", said, re.MULTILINE))
    assert set(accuracies) == {"1", "2"}, said
    # Both processes have the same weights.
    assert len(set(accuracies.values())) == 1, said
    assert float(accuracies["1"]) >= 0.9, said


def test_accelerates_own_test_passes_on_two_nodes_that_share_a_directory(
    cluster_with_packages: DeployedCluster,
) -> None:
    cluster = cluster_with_packages
    wait_until(
        lambda: {cluster.on(alias, STATE) for alias in aliases()} == {"mounted"}, "the directory", timeout_s=MOUNT_S
    )
    test = "python -m accelerate.test_utils.scripts.test_script"
    line = f"launch -n 2 --venv ~/frameworks --env ACCELERATE_USE_CPU:1 {test}"
    said = cluster.on(MASTER, f"cd $EFS_MOUNT && ({line} && echo passed) 2>&1 || true")
    assert said.endswith("\npassed"), said
    assert {"Num processes: 2", "Process index: 0", "Process index: 1"} <= set(re.findall(r"\w+ \w+: \d", said)), said
    assert "**Training integration test**" in said
