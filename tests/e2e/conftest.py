"""Deploy one cluster for all tests of a folder (cluster/, healing/, ...), like a user, on nodes of the local AWS."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from local.run.user import User, deploy_arguments, temporary_user
from tests.e2e.support.deployed_cluster import (
    ACCOUNT,
    NODES,
    WITHOUT_VALIDATION,
    DeployedCluster,
    group_instances,
    stack_outputs,
)
from tests.e2e.support.port_scan import listening, outside_machine


@pytest.fixture(scope="session")
def user() -> Iterator[User]:
    with temporary_user() as own:
        user = replace(own, environment={**own.environment, **WITHOUT_VALIDATION})
        # With account and region named, nothing is synthesized; `make demo` bootstraps as the README describes.
        user.cdk("bootstrap", f"aws://{ACCOUNT}/us-east-1")
        yield user


@pytest.fixture(scope="session")
def extra_settings() -> tuple[str, ...]:
    """Return settings of the cluster, as arguments; a folder's own conftest.py replaces them."""
    return ()


@pytest.fixture(scope="session")
def deployed(user: User, extra_settings: tuple[str, ...]) -> None:
    """Deploy the cluster; a folder's own conftest.py may deploy the same one in another way."""
    user.cdk(*deploy_arguments(nodes=NODES), *extra_settings)


@pytest.fixture(scope="session")
def cluster(user: User, extra_settings: tuple[str, ...], deployed: None) -> DeployedCluster:
    """Return the deployed cluster; after_all_tests/test_destroy.py destroys it and checks what is left."""
    user.write_ssh_config()
    outputs = stack_outputs()
    masters = group_instances(outputs["MasterAutoScalingGroup"])
    workers = group_instances(outputs["WorkerAutoScalingGroup"])
    assert (len(masters), len(workers)) == (1, NODES - 1)
    return DeployedCluster(user=user, instances=(*masters, *workers), settings=extra_settings)


@pytest.fixture(scope="module")
def listening_cluster(cluster: DeployedCluster) -> Iterator[DeployedCluster]:
    """Return the cluster with a program listening on every tried port of every node."""
    with ExitStack() as nodes:
        for instance_id in cluster.addresses:
            nodes.enter_context(listening(instance_id))
        yield cluster


@pytest.fixture(scope="module")
def outside_address() -> Iterator[str]:
    """Return an internet address that is not in ``ssh_location``."""
    with outside_machine() as address:
        yield address
