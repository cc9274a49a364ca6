"""Who the members could be: the cluster's Auto Scaling groups, and EC2's word on their instances."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from bootstrap.contract import CLUSTER_TAG, MASTER, NODE_TYPE_TAG, WORKER, NodeType
from bootstrap.errors import GroupsError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef
    from mypy_boto3_ec2 import EC2Client

LEAVING: Final = ("Terminating", "Terminated", "Detaching", "Detached")
"""Lifecycle states, with or without ``:Wait`` and ``:Proceed``, of instances on their way out."""
GONE: Final = frozenset({"shutting-down", "terminated"})
STARTED: Final = frozenset({"pending", "running"})
FILTER_VALUES: Final = 200
"""Most values that a filter of DescribeInstances takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One Auto Scaling group of the cluster."""

    node_type: NodeType
    desired: int
    instance_ids: frozenset[str]
    """Instances that are in it to stay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """An instance as EC2 describes it."""

    instance_id: str
    state: str
    address: str | None
    """Private; EC2 may give it a moment later than the id."""

    @property
    def gone(self) -> bool:
        """Whether it will never answer again."""
        return self.state in GONE

    @property
    def reachable(self) -> bool:
        """Whether it can be a member now."""
        return self.state in STARTED and self.address is not None


def describe_groups(client: "AutoScalingClient", *, cluster_name: str) -> list[Group]:
    """The cluster's groups, found by tag; an error unless both kinds are there."""
    pages = client.get_paginator("describe_auto_scaling_groups").paginate(
        Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_name]}]
    )
    groups = [_group(group) for page in pages for group in page["AutoScalingGroups"]]
    # The two are created side by side: counting one of them would call half a cluster complete.
    missing = {MASTER, WORKER} - {group.node_type for group in groups}
    if missing:
        raise GroupsError(f"cluster {cluster_name} has no {' and no '.join(sorted(missing))} group yet")
    return groups


def describe_instances(client: "EC2Client", instance_ids: Collection[str]) -> dict[str, Instance]:
    """The instances that EC2 still knows; a filter, unlike a list of ids, may name others."""
    found = {}
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
                    )
                    found[instance.instance_id] = instance
    return found


def _group(group: "AutoScalingGroupTypeDef") -> Group:
    tags = {tag["Key"]: tag.get("Value") for tag in group["Tags"]}
    node_type = tags.get(NODE_TYPE_TAG)
    name = group["AutoScalingGroupName"]
    if node_type not in (MASTER, WORKER):
        raise GroupsError(f"tag {NODE_TYPE_TAG} of {name} must be {MASTER} or {WORKER}, got {node_type}")
    return Group(
        node_type=cast("NodeType", node_type),
        desired=group["DesiredCapacity"],
        instance_ids=frozenset(
            instance["InstanceId"]
            for instance in group["Instances"]
            if instance["LifecycleState"].partition(":")[0] not in LEAVING
        ),
    )


def _chunks(values: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (values[start : start + size] for start in range(0, len(values), size))
