"""Deploy one cluster for all tests of a part, like a user, on real nodes of the local AWS.

Expected values come from the EC2 API, never from files that the product wrote.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from local.faults.clients import client
from local.run.user import User, deploy_arguments, temporary_user
from tests.e2e.port_scan import listening, outside_machine

NODES = 3
SHARED_CONNECTION = ("-o", "ControlMaster=auto", "-o", "ControlPath=/run/ssh-%C", "-o", "ControlPersist=120")
"""SSH options that share one connection per node between these tests; test_login.py logs in without them."""
STACK = "deeplearning"
ACCOUNT = "123456789012"
WITHOUT_VALIDATION = {"CDK_VALIDATION": "false"}
"""Setting that skips the CDK's check of templates, two thirds of a synth; tests/stacks/test_validators.py and the demo
include it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployedCluster:
    """A deployed cluster: its user, and its instances as AWS describes them."""

    user: User
    instances: tuple[dict[str, Any], ...]
    """Instances: the master first, then the workers in any order."""
    settings: tuple[str, ...] = ()
    """The part's settings, as arguments that each deploy repeats."""

    @property
    def master(self) -> dict[str, Any]:
        return self.instances[0]

    @property
    def addresses(self) -> dict[str, str]:
        """Return the private addresses by instance id."""
        return {i["InstanceId"]: i["PrivateIpAddress"] for i in self.instances}

    @property
    def public_address(self) -> str:
        """Return the master's address on the internet."""
        return str(self.master["PublicIpAddress"])

    def on(self, alias: str, command: str) -> str:
        """Return a command's output on a node, logged in through the master as the README says."""
        return self.user.output(*self.user.ssh_command(alias, command, options=SHARED_CONNECTION)).strip()


def stack_outputs(name: str = STACK) -> dict[str, str]:
    stack = client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def group_instances(group: str) -> list[dict[str, Any]]:
    groups = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    ids = [i["InstanceId"] for i in groups["AutoScalingGroups"][0]["Instances"]]
    reservations = client("ec2").describe_instances(InstanceIds=ids)["Reservations"] if ids else []
    return [dict(i) for r in reservations for i in r["Instances"]]


def node_disk(instance_id: str) -> Path:
    """Return the directory with what a node wrote to its disk, seen from outside the node."""
    return Path(os.environ["LOCAL_AWS_DIR"], "nodes", instance_id, "disk/upper")


def aliases() -> list[str]:
    return [f"deeplearning-worker{node_index}" for node_index in range(1, NODES + 1)]


@pytest.fixture(scope="session")
def user() -> Iterator[User]:
    with temporary_user() as own:
        user = replace(own, environment={**own.environment, **WITHOUT_VALIDATION})
        # With account and region named, nothing is synthesized; `make demo` bootstraps as the README describes.
        user.cdk("bootstrap", f"aws://{ACCOUNT}/us-east-1")
        yield user


@pytest.fixture(scope="session")
def more_settings() -> tuple[str, ...]:
    """Return settings of the cluster, as arguments; a part's own conftest.py replaces them."""
    return ()


@pytest.fixture(scope="session")
def deployed(user: User, more_settings: tuple[str, ...]) -> None:
    """Deploy the cluster; a part's own conftest.py may deploy the same one in another way."""
    user.cdk(*deploy_arguments(nodes=NODES), *more_settings)


@pytest.fixture(scope="session")
def cluster(user: User, more_settings: tuple[str, ...], deployed: None) -> DeployedCluster:
    """Return the deployed cluster; after_all_tests/test_destroy.py destroys it and checks what is left."""
    user.write_ssh_config()
    outputs = stack_outputs()
    masters = group_instances(outputs["MasterAutoScalingGroup"])
    workers = group_instances(outputs["WorkerAutoScalingGroup"])
    assert (len(masters), len(workers)) == (1, NODES - 1)
    return DeployedCluster(user=user, instances=(*masters, *workers), settings=more_settings)


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
