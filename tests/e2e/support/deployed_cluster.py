"""Describe a cluster that a test deployed, and find its parts in AWS.

Expected values come from the EC2 API, never from files that the product wrote.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.faults.clients import client
from local.run.user import User

NODES = 3
SHARED_CONNECTION = (
    "-o", "ControlMaster=auto", "-o", "ControlPath=/run/ssh-%C", "-o", "ControlPersist=120", "-o", "ConnectTimeout=60"
)  # fmt: skip
"""SSH options that share one connection per node between these tests, and wait longer for it than a user's, for a busy
machine; test_login.py logs in without them."""
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
    """The folder's settings, as arguments that each deploy repeats."""

    @property
    def master(self) -> dict[str, Any]:
        return self.instances[0]

    @property
    def addresses(self) -> dict[str, str]:
        """Return the private addresses by instance id."""
        return {instance["InstanceId"]: instance["PrivateIpAddress"] for instance in self.instances}

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
    ids = [instance["InstanceId"] for instance in groups["AutoScalingGroups"][0]["Instances"]]
    reservations = client("ec2").describe_instances(InstanceIds=ids)["Reservations"] if ids else []
    return [dict(instance) for reservation in reservations for instance in reservation["Instances"]]


def node_disk(instance_id: str) -> Path:
    """Return the directory with what a node wrote to its disk, seen from outside the node."""
    return Path(os.environ["LOCAL_AWS_DIR"], "nodes", instance_id, "disk/upper")


def aliases() -> list[str]:
    return [f"deeplearning-worker{node_index}" for node_index in range(1, NODES + 1)]
