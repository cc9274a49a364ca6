"""Read the Auto Scaling groups of a cluster and their instances."""

from bootstrap.contract import NODE_TYPES, group_name
from local.faults.clients import client
from tests.e2e.support.deployed_cluster import STACK, group_instances


def members(cluster: str = STACK) -> set[str]:
    """Return the IDs of all instances in the groups."""
    return {instance["InstanceId"] for kind in NODE_TYPES for instance in group_instances(group_name(cluster, kind))}


def states(instances: set[str]) -> set[str]:
    """Return the states of instances, in the groups or not."""
    reservations = client("ec2").describe_instances(InstanceIds=sorted(instances))["Reservations"]
    return {instance["State"]["Name"] for reservation in reservations for instance in reservation["Instances"]}


def sizes(cluster: str = STACK) -> list[tuple[int, int, int]]:
    """Return the smallest, desired and largest size of the master's and the workers' group."""
    names = [group_name(cluster, kind) for kind in NODE_TYPES]
    groups = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
    by_name = {group["AutoScalingGroupName"]: group for group in groups}
    return [(by_name[n]["MinSize"], by_name[n]["DesiredCapacity"], by_name[n]["MaxSize"]) for n in names]
