"""Find where an earlier run stopped, from only CloudFormation and the groups; terminate what cannot be continued."""

from dataclasses import dataclass

from bootstrap.aws.group_sizes import ClusterSizes
from cli.errors import ClusterError
from cli.node_groups.groups import GroupStates, instance_ids, is_paused, list_zones, read_groups, sizes_by_node_type
from cli.up.attempt import find_attempt, recorded_attempt
from cli.up.fleet import Fleet
from cli.up.zone_deployer import ZoneDeployer, has_zone, is_created, zone_parameters


class OtherSizesError(ClusterError):
    """The cluster is running, and this run must not change it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumePoint:
    """The point from which a run of ``dlcluster up`` goes on."""

    zone: str = ""
    """Zone in which to continue; empty if every group is empty."""
    is_complete: bool = False
    """True if every node was launched there."""
    is_declared: bool = False
    """True if the deployed template already declares these nodes, so no deploy is needed."""


def recover(deployer: ZoneDeployer, declared: ClusterSizes) -> ResumePoint:
    """Return where to continue; terminate the nodes of an attempt that cannot go on. Raises ClusterError."""
    stack = deployer.wait_for_settled_stack()
    if stack is None or not is_created(stack):
        return ResumePoint()
    fleet = Fleet.of_stack(deployer, declared)
    groups = fleet.read()
    if has_zone(stack):
        zone = next(iter(zone_parameters(stack).values()), "")
        if sizes_by_node_type(groups) == declared:
            return ResumePoint(zone=zone, is_complete=True, is_declared=True)
        if not is_paused(groups):
            raise OtherSizesError(
                f"{deployer.name} runs in {zone} with other sizes than cdk.json has: dlcluster resize or resume "
                "changes them there, dlcluster pause terminates the nodes, so that up can look for capacity"
            )
        deployer.lock.acquire_or_renew()
        deployer.clear_zone()
    else:
        deployer.lock.acquire_or_renew()
        groups = fleet.read()
        if unfinished := _unfinished(deployer, fleet, groups):
            return unfinished
        _refuse_unrecorded(deployer, groups)
    fleet.terminate(may_still_launch=recorded_attempt(groups) is not None)
    return ResumePoint()


def running_zone(deployer: ZoneDeployer, declared: ClusterSizes) -> str:
    """Return the zone in which every node was started earlier; empty if work remains. Raises ClusterError."""
    stack = deployer.wait_for_settled_stack()
    if stack is None or not is_created(stack) or not has_zone(stack):
        return ""
    groups = read_groups(deployer.clients.autoscaling, deployer.name)
    return next(iter(zone_parameters(stack).values()), "") if sizes_by_node_type(groups) == declared else ""


def _unfinished(deployer: ZoneDeployer, fleet: Fleet, groups: GroupStates) -> ResumePoint | None:
    """Return the attempt that can be continued, or the complete fleet that lacks only the deploy that declares it."""
    attempt = find_attempt(groups, fleet.declared)
    if attempt is not None:
        if attempt.zone in deployer.zones and fleet.can_continue(attempt, groups):
            return ResumePoint(zone=attempt.zone)
        return None
    zones = list_zones(groups)
    if sizes_by_node_type(groups) == fleet.declared and len(zones) == 1 and zones <= {*deployer.zones}:
        return ResumePoint(zone=next(iter(zones)), is_complete=True)
    return None


def _refuse_unrecorded(deployer: ZoneDeployer, groups: GroupStates) -> None:
    """Raise OtherSizesError for nodes of no attempt: jobs may run there if only the last deploy is missing."""
    if recorded_attempt(groups) is not None or is_paused(groups) or not (nodes := instance_ids(groups)):
        return
    zones = " and ".join(sorted(list_zones(groups)))
    raise OtherSizesError(
        f"{deployer.name} runs in {zones} with other sizes or zones than cdk.json has ({', '.join(nodes)}): up "
        "with the earlier settings keeps the nodes, dlcluster pause terminates them"
    )
