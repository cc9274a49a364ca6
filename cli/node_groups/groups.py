"""Read and write the sizes of a cluster's groups; the numbers themselves come from bootstrap.aws.group_sizes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bootstrap.aws.group_sizes import PAUSED, ClusterSizes, GroupSize
from bootstrap.contract import MASTER, NODE_TYPES, WORKER, NodeType, group_name
from cli.aws.clients import Clients
from cli.aws.clusters import Cluster
from cli.aws.scaling import reason_to_survive_pause
from cli.errors import ClusterError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

IN_SERVICE: Final = "InService"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupState:
    """One group, as Auto Scaling describes it."""

    name: str
    size: GroupSize
    instances: Mapping[str, str]
    """Lifecycle state by instance id."""
    protected_instances: Mapping[str, str] = field(default_factory=dict)
    """Instances that scaling in to zero does not terminate, each with the reason."""
    zones: frozenset[str] = frozenset()
    """Zones of the instances."""
    launch_zones: frozenset[str] = frozenset()
    """Zones in which the group launches."""
    tags: Mapping[str, str] = field(default_factory=dict)


GroupStates = Mapping[NodeType, GroupState]
"""The states of both groups."""


def read_groups(autoscaling: "AutoScalingClient", cluster_name: str) -> GroupStates:
    """Return the state of both groups. Raises ClusterError unless both exist."""
    names = {node_type: group_name(cluster_name, node_type) for node_type in NODE_TYPES}
    answer = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[*names.values()])["AutoScalingGroups"]
    states = {group["AutoScalingGroupName"]: _state(group) for group in answer}
    if missing := sorted(set(names.values()) - states.keys()):
        raise ClusterError(f"cluster {cluster_name} has no Auto Scaling group {' and '.join(missing)}")
    return {node_type: states[name] for node_type, name in names.items()}


def _state(group: "AutoScalingGroupTypeDef") -> GroupState:
    instances = group.get("Instances", [])
    return GroupState(
        name=group["AutoScalingGroupName"],
        size=GroupSize(min_size=group["MinSize"], desired_capacity=group["DesiredCapacity"], max_size=group["MaxSize"]),
        instances={instance["InstanceId"]: instance["LifecycleState"] for instance in instances},
        protected_instances={
            instance["InstanceId"]: reason for instance in instances if (reason := reason_to_survive_pause(instance))
        },
        zones=frozenset(instance["AvailabilityZone"] for instance in instances),
        launch_zones=frozenset(group.get("AvailabilityZones", [])),
        tags={tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])},
    )


def sizes_by_node_type(groups: GroupStates) -> ClusterSizes:
    """Return the present sizes of both groups."""
    return {node_type: group.size for node_type, group in groups.items()}


def list_zones(groups: GroupStates) -> frozenset[str]:
    """Return the zones in which the groups have instances."""
    return frozenset[str]().union(*(group.zones for group in groups.values()))


def list_launch_zones(groups: GroupStates) -> frozenset[str]:
    """Return the zones in which the groups launch."""
    return frozenset[str]().union(*(group.launch_zones for group in groups.values()))


def instance_ids(groups: GroupStates) -> list[str]:
    """Return the instances of both groups, those of the master's group first."""
    return [instance_id for node_type in NODE_TYPES for instance_id in groups[node_type].instances]


def protected_instances(groups: GroupStates) -> dict[str, str]:
    """Return the instances of both groups that scaling in to zero does not terminate, each with the reason."""
    return {
        instance_id: reason
        for node_type in NODE_TYPES
        for instance_id, reason in groups[node_type].protected_instances.items()
    }


def is_paused(groups: GroupStates) -> bool:
    """Return True if neither group has or launches nodes."""
    return all(group.size.is_paused for group in groups.values())


def pause_groups(clients: Clients, cluster_name: str) -> None:
    """Set both groups to zero, the workers' first, so that a lost call leaves no workers without a master."""
    for node_type in (WORKER, MASTER):
        clients.autoscaling.update_auto_scaling_group(**PAUSED.request(group_name(cluster_name, node_type)))


def terminate_instances(clients: Clients, instances: Iterable[str]) -> None:
    """Terminate instances that scaling in to zero does not terminate; they drain like any other node."""
    for instance_id in instances:
        # Nothing replaces them: their group's size is zero, and AWS does not decrement it further.
        clients.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
        )


def resume_groups(clients: Clients, cluster_name: str, declared: ClusterSizes) -> None:
    """Give both groups the declared sizes, the master's first, because workers without a master only cost money."""
    for node_type in (MASTER, WORKER):
        clients.autoscaling.update_auto_scaling_group(
            **declared[node_type].request(group_name(cluster_name, node_type))
        )


def raise_max_sizes(clients: Clients, groups: GroupStates, declared: ClusterSizes) -> None:
    """Raise the maximum sizes of paused groups without starting nodes: LaunchInstances raises the desired size."""
    for node_type, group in groups.items():
        max_size = declared[node_type].max_size
        if group.size.max_size < max_size:
            size = GroupSize(min_size=0, desired_capacity=group.size.desired_capacity, max_size=max_size)
            clients.autoscaling.update_auto_scaling_group(**size.request(group.name))


def require_settled(cluster: Cluster) -> None:
    """Refuse to change sizes while CloudFormation changes the stack and could undo the change. Raises ClusterError."""
    status = cluster.stack_status
    if status.endswith("_IN_PROGRESS") and "_CLEANUP_" not in status:
        raise ClusterError(f"stack {cluster.stack_name} is {status}: wait until CloudFormation has finished, try again")


def require_placed(cluster: Cluster, declared: ClusterSizes) -> None:
    """Refuse to start nodes until ``dlcluster up`` has chosen a zone, because the template declares none before.

    Raises ClusterError.
    """
    if all(size.is_paused for size in declared.values()):
        raise ClusterError(f"no zone is chosen yet for {cluster.name}: dlcluster up finds one with capacity")
