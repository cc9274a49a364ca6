"""Describe the candidates for membership: the cluster's Auto Scaling groups and their EC2 instances."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.contract import GROUP_TAG, NODE_TYPES, NodeType, group_name
from bootstrap.errors import GroupsError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef
    from mypy_boto3_ec2 import EC2Client

NOT_COUNTED: Final = ("Terminating", "Terminated", "Detaching", "Detached", "EnteringStandby", "Standby")
"""Lifecycle states of instances that the group does not count, with or without ``:Wait`` and ``:Proceed``
("Amazon EC2 Auto Scaling instance lifecycle")."""
TERMINATED: Final = "terminated"
"""EC2's state of an instance that no longer runs; one that is shutting down may still be writing a checkpoint."""
STARTED: Final = frozenset({"pending", "running"})
FILTER_VALUES: Final = 200
"""Largest number of values in a filter of DescribeInstances."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One Auto Scaling group of the cluster."""

    node_type: NodeType
    desired_capacity: int
    """Its DesiredCapacity; the deploy sets it (stacks/nodes/node_group.py)."""
    tags: Mapping[str, str]
    """Its tags, which a deploy changes while the nodes run."""
    active_ids: frozenset[str]
    """Instances that count toward DesiredCapacity: in service, or pending."""
    leaving_or_standby_ids: frozenset[str] = frozenset()
    """Instances that do not: terminating, being detached, or in standby."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """An instance as EC2 describes it."""

    instance_id: str
    state: str
    address: str | None
    """Private IPv4 address; None just after the launch."""
    in_group: bool
    """True if the instance is in an Auto Scaling group; a detached one has left the cluster."""

    @property
    def is_terminated(self) -> bool:
        """Return True if EC2 has terminated the instance; its group may list it until the lifecycle hook times out."""
        return self.state == TERMINATED

    @property
    def has_left(self) -> bool:
        """Return True if the instance will never be a member again."""
        return self.is_terminated or not self.in_group

    @property
    def can_be_member(self) -> bool:
        """Return True if the instance can be a member at present."""
        return self.state in STARTED and self.address is not None


def describe_groups(client: "AutoScalingClient", *, cluster_name: str) -> list[Group]:
    """Describe both groups. Raises GroupsError unless both exist."""
    names = {group_name(cluster_name, node_type): node_type for node_type in NODE_TYPES}
    groups = client.describe_auto_scaling_groups(AutoScalingGroupNames=sorted(names))["AutoScalingGroups"]
    # CloudFormation creates them in parallel; with only one, half a cluster would look complete.
    missing = sorted(names.keys() - {group["AutoScalingGroupName"] for group in groups})
    if missing:
        raise GroupsError(f"both Auto Scaling groups must exist, missing {' and '.join(missing)}")
    return [_group(group, names[group["AutoScalingGroupName"]]) for group in groups]


def describe_instances(client: "EC2Client", instance_ids: Collection[str]) -> dict[str, Instance]:
    """Describe the instances that EC2 knows, by ID. Uses a filter: InstanceIds fails if any ID is unknown."""
    instances = {}
    for chunk in _chunks(sorted(instance_ids), FILTER_VALUES):
        pages = client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-id", "Values": list(chunk)}]
        )
        for page in pages:
            for reservation in page["Reservations"]:
                for row in reservation["Instances"]:
                    instance = Instance(
                        instance_id=row["InstanceId"],
                        state=row["State"]["Name"],
                        address=row.get("PrivateIpAddress"),
                        in_group=any(tag.get("Key") == GROUP_TAG for tag in row.get("Tags", [])),
                    )
                    instances[instance.instance_id] = instance
    return instances


def _group(group: "AutoScalingGroupTypeDef", node_type: NodeType) -> Group:
    ids = frozenset(instance["InstanceId"] for instance in group["Instances"])
    leaving_or_standby_ids = frozenset(
        instance["InstanceId"]
        for instance in group["Instances"]
        if instance["LifecycleState"].partition(":")[0] in NOT_COUNTED
    )
    return Group(
        node_type=node_type,
        desired_capacity=group["DesiredCapacity"],
        tags={tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])},
        active_ids=ids - leaving_or_standby_ids,
        leaving_or_standby_ids=leaving_or_standby_ids,
    )


def _chunks(values: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (values[start : start + size] for start in range(0, len(values), size))
