"""Read the Auto Scaling groups of a cluster and their instances."""

from dataclasses import dataclass

from bootstrap.contract import NODE_TYPES, group_name
from local.faults.clients import client
from tests.e2e.support.deployed_cluster import STACK, group_instances


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSize:
    """Size of an Auto Scaling group."""

    min_size: int
    desired_capacity: int
    max_size: int


def fixed_size(count: int) -> GroupSize:
    """Return the size of a group that always has so many instances."""
    return GroupSize(min_size=count, desired_capacity=count, max_size=count)


PAUSED = [fixed_size(0)] * len(NODE_TYPES)
"""Sizes of the groups of a paused cluster."""


def members(cluster: str = STACK) -> set[str]:
    """Return the IDs of all instances in the groups."""
    return {instance["InstanceId"] for kind in NODE_TYPES for instance in group_instances(group_name(cluster, kind))}


def instance_states(instances: set[str]) -> set[str]:
    """Return the states of instances, in the groups or not."""
    reservations = client("ec2").describe_instances(InstanceIds=sorted(instances))["Reservations"]
    return {instance["State"]["Name"] for reservation in reservations for instance in reservation["Instances"]}


def group_sizes(cluster: str = STACK) -> list[GroupSize]:
    """Return the sizes of the master's and the workers' group."""
    names = [group_name(cluster, node_type) for node_type in NODE_TYPES]
    groups = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
    sizes = {
        group["AutoScalingGroupName"]: GroupSize(
            min_size=group["MinSize"], desired_capacity=group["DesiredCapacity"], max_size=group["MaxSize"]
        )
        for group in groups
    }
    return [sizes[name] for name in names]
