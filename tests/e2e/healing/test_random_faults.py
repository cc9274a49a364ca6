"""Test that the cluster survives ten random faults, even on the master; `make soak` runs more (docs/local-aws.md)."""

from local.chaos.cluster_chaos import run_chaos
from tests.e2e.support.deployed_cluster import STACK, DeployedCluster

SEED = 20261121


def test_cluster_recovers_from_ten_random_faults(cluster: DeployedCluster) -> None:
    assert len(cluster.instances) == 3
    run_chaos(STACK, seed=SEED, count=10, within_s=60.0, min_per_kind=0, environment=cluster.user.environment)
