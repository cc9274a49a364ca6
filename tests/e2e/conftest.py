"""One cluster for all tests here: deployed as a user deploys it, on real nodes of the local AWS.

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
from local.run.user import User, deploy_arguments, new_user
from tests.e2e.port_scan import listening, outside_machine

NODES = 3
SHARED = ("-o", "ControlMaster=auto", "-o", "ControlPath=/run/ssh-%C", "-o", "ControlPersist=120")
"""One connection a node for all commands of these tests; what a login itself does test_login.py asks without it."""
STACK = "deeplearning"
ACCOUNT = "123456789012"
WITHOUT_VALIDATION = {"CDK_VALIDATION": "false"}
"""The CDK's check of templates takes two thirds of a synth: tests/stacks/test_validators.py has it, and the demo."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A deployed cluster: its user, and what AWS says of it."""

    user: User
    instances: tuple[dict[str, Any], ...]
    """Slot order is not AWS's business: the master first, the workers in any order."""

    @property
    def master(self) -> dict[str, Any]:
        return self.instances[0]

    @property
    def addresses(self) -> dict[str, str]:
        """Private address by instance id."""
        return {i["InstanceId"]: i["PrivateIpAddress"] for i in self.instances}

    @property
    def public_address(self) -> str:
        """Where the internet reaches the master."""
        return str(self.master["PublicIpAddress"])

    def on(self, alias: str, command: str) -> str:
        """Output of a command on a node, logged in through the master as the README says."""
        return self.user.output(*self.user.ssh_command(alias, command, options=SHARED)).strip()


def stack_outputs() -> dict[str, str]:
    stack = client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def group_instances(group: str) -> list[dict[str, Any]]:
    groups = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    ids = [i["InstanceId"] for i in groups["AutoScalingGroups"][0]["Instances"]]
    reservations = client("ec2").describe_instances(InstanceIds=ids)["Reservations"] if ids else []
    return [dict(i) for r in reservations for i in r["Instances"]]


def node_disk(instance_id: str) -> Path:
    """What a node wrote to its disk, seen from outside the node."""
    return Path(os.environ["LOCAL_AWS_DIR"], "nodes", instance_id, "disk/upper")


def aliases() -> list[str]:
    return [f"deeplearning-worker{slot}" for slot in range(1, NODES + 1)]


@pytest.fixture(scope="session")
def user() -> Iterator[User]:
    with new_user() as own:
        user = replace(own, environment={**own.environment, **WITHOUT_VALIDATION})
        # Named, so that nothing is synthesized for it: `make demo` bootstraps as the README says.
        user.cdk("bootstrap", f"aws://{ACCOUNT}/us-east-1")
        yield user


@pytest.fixture(scope="session")
def cluster(user: User) -> Cluster:
    """The cluster; test_zz_destroy.py takes it away and looks at what is left."""
    user.cdk(*deploy_arguments(nodes=NODES))
    user.write_ssh_config()
    outputs = stack_outputs()
    masters = group_instances(outputs["MasterAutoScalingGroup"])
    workers = group_instances(outputs["WorkerAutoScalingGroup"])
    assert (len(masters), len(workers)) == (1, NODES - 1)
    return Cluster(user=user, instances=(*masters, *workers))


@pytest.fixture(scope="module")
def listened(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a program behind every tried port of every node."""
    with ExitStack() as nodes:
        for instance_id in cluster.addresses:
            nodes.enter_context(listening(instance_id))
        yield cluster


@pytest.fixture(scope="module")
def outsider() -> Iterator[str]:
    """An address of the internet that is not in ``ssh_location``."""
    with outside_machine() as address:
        yield address
