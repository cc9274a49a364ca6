"""Deploy a cluster with a shared directory and an environment with the examples' packages.

The packages get to the nodes as a user's environment does: ``dlcluster push``, then ``launch --venv``.
"""

import os
from pathlib import Path

import pytest

from tests.e2e.support.deployed_cluster import SHARED_CONNECTION, DeployedCluster

EXAMPLES = Path(__file__).parents[3] / "examples"
MASTER = "deeplearning-master"


@pytest.fixture(scope="session")
def extra_settings() -> tuple[str, ...]:
    return ("-c", "shared_storage=efs")


@pytest.fixture(scope="session")
def cluster_with_packages(cluster: DeployedCluster) -> DeployedCluster:
    packages = os.environ["EXAMPLES_PACKAGES"]
    cluster.user.run("dlcluster", "push", packages, "--to", "frameworks")
    shell = " ".join(cluster.user.ssh_command("", options=SHARED_CONNECTION)[:-1])
    cluster.user.run("rsync", "-a", "-e", shell, f"{EXAMPLES}/", f"{MASTER}:examples/")
    return cluster
