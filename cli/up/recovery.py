"""Find where an earlier call stopped, from CloudFormation and the groups alone, and end what cannot be continued."""

from dataclasses import dataclass

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import CLUSTER_NAME_OUTPUT
from cli.aws.clusters import Cluster, find_cluster
from cli.errors import ClusterError
from cli.sizes.groups import GroupStates, is_paused, sizes_of
from cli.up import attempt as attempts
from cli.up.fleet import Fleet
from cli.up.placement import Placement, is_placed, zone_parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The state in which a call finds a cluster."""

    zone: str = ""
    """Zone in which to go on; empty if every group is empty."""
    is_whole: bool = False
    """True if every node was launched there."""
    is_kept: bool = False
    """True if the template says so too."""


def recover(placement: Placement, declared: ClusterSizes) -> Found:
    """Return where to go on; end nodes that belong to no attempt. Raises ClusterError."""
    stack = placement.settled_stack()
    outputs = {each.get("OutputKey", "") for each in stack.get("Outputs", [])} if stack else set()
    if stack is None or CLUSTER_NAME_OUTPUT not in outputs:
        return Found()
    fleet = Fleet(clients=placement.clients, cluster=cluster_of(placement), declared=declared)
    groups = fleet.read()
    if is_placed(stack):
        zone = next(iter(zone_parameters(stack).values()), "")
        if sizes_of(groups) == declared:
            return Found(zone=zone, is_whole=True, is_kept=True)
        if not is_paused(groups):
            raise ClusterError(
                f"{placement.name} runs in {zone} with other sizes than cdk.json has: dlcluster resize or resume "
                "changes them there, dlcluster pause ends the nodes, so that up can look for room"
            )
        placement.free()
    elif found := _unfinished(placement, groups, declared):
        return found
    fleet.end()
    return Found()


def cluster_of(placement: Placement) -> Cluster:
    """Return the cluster of the stack. Raises ClusterError."""
    clients = placement.clients
    return find_cluster(clients.cloudformation, name=placement.name, region=clients.region)


def _unfinished(placement: Placement, groups: GroupStates, declared: ClusterSizes) -> Found | None:
    """Return the attempt that can be continued, or the fleet that is whole and only lacks the deploy that keeps it."""
    attempt = attempts.find(groups, declared)
    if attempt is not None:
        return Found(zone=attempt.zone) if attempt.zone in placement.zones else None
    zones = frozenset[str]().union(*(group.zones for group in groups.values()))
    if sizes_of(groups) == declared and len(zones) == 1 and zones <= {*placement.zones}:
        return Found(zone=next(iter(zones)), is_whole=True)
    return None
