"""Wait until the nodes of a cluster are gone or ready, and report what is still missing."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import MAX_GRACE_S
from cli.aws.clients import Clients, aws_errors
from cli.aws.clusters import Cluster, deployed_setup
from cli.aws.nodes import RUNNING, ClusterNode, find_instances, read_membership
from cli.aws.scaling import Activity, distinct_failures, read_activities
from cli.errors import ClusterError
from cli.node_groups.groups import IN_SERVICE, GroupStates, instance_ids, is_paused, read_groups, sizes_by_node_type
from cli.output import printable
from cli.shared_options import invocation

POLL_S: Final = 3.0
"""Seconds between polls."""
GONE_TIMEOUT_S: Final = MAX_GRACE_S + 600.0
"""Timeout for nodes to end, in seconds: draining takes a minute or two, ranks may save for MAX_GRACE_S, and large
types take minutes to shut down."""
READY_TIMEOUT_S: Final = 1800.0
"""Timeout for nodes without setup to be ready, in seconds; the same as a deploy's."""
CLOCK_DIFFERENCE: Final = timedelta(minutes=5)
"""Largest difference between this machine's clock and AWS's; AWS refuses requests beyond it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitStatus:
    """State of a wait: what is still missing, which is nothing once it is over."""

    missing: str = ""
    failures: tuple[Activity, ...] = ()
    """Failed launches, one per reason."""
    members: tuple[ClusterNode, ...] = ()


def wait_until_gone(clients: Clients, cluster: Cluster, *, timeout_s: float = GONE_TIMEOUT_S) -> None:
    """Wait until both groups have no instances. Raises ClusterError, even if somebody starts the nodes again."""

    def read_status() -> WaitStatus:
        groups = read_groups(clients.autoscaling, cluster.name)
        if not is_paused(groups):
            raise ClusterError(f"somebody else has changed the sizes of {cluster.name}: run {invocation()} pause again")
        left = [f"{name} {state}" for group in groups.values() for name, state in group.instances.items()]
        return WaitStatus(missing=f"{len(left)} of its nodes to end ({', '.join(left)})" if left else "")

    _wait(read_status, timeout_s=timeout_s, advice=f"{invocation()} pause waits again")


def wait_until_ready(
    clients: Clients, cluster: Cluster, declared: ClusterSizes, *, timeout_s: float | None = None
) -> tuple[ClusterNode, ...]:
    """Wait until every declared node is a member and running; return the members. Raises ClusterError.

    The default of ``timeout_s`` is READY_TIMEOUT_S plus the time that the deployed setup may take. Failed launches are
    printed as they occur, because a group without capacity never stops retrying.
    """
    since = datetime.now(timezone.utc) - CLOCK_DIFFERENCE
    if timeout_s is None:
        timeout_s = READY_TIMEOUT_S + (deployed_setup(cluster).timeout_s if cluster.setup else 0)

    def read_status() -> WaitStatus:
        groups = read_groups(clients.autoscaling, cluster.name)
        if sizes_by_node_type(groups) != declared:
            raise ClusterError(
                f"somebody else has changed the sizes of {cluster.name}: run {invocation()} resume again"
            )
        return _read_status(clients, cluster, groups, since=since)

    try:
        return _wait(
            read_status, timeout_s=timeout_s, advice=f"{invocation()} why shows more; {still_starting()}"
        ).members
    except KeyboardInterrupt:
        print(f"dlcluster: not all nodes are ready; {still_starting()}", file=sys.stderr)
        raise


def still_starting() -> str:
    """Return what goes on after a wait that was given up, and the commands for both ways to continue."""
    dlcluster = invocation()
    return f"EC2 Auto Scaling keeps starting nodes: {dlcluster} resume waits again, {dlcluster} pause terminates them"


def _read_status(clients: Clients, cluster: Cluster, groups: GroupStates, *, since: datetime) -> WaitStatus:
    desired = sum(group.size.desired_capacity for group in groups.values())
    launched = [name for group in groups.values() for name, state in group.instances.items() if state == IN_SERVICE]
    if len(launched) < desired:
        failures = _failed_launches(clients, groups, since=since)
        return WaitStatus(missing=f"{desired - len(launched)} of {desired} nodes to start", failures=failures)
    try:
        membership = read_membership(
            clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
        )
    except ClusterError as error:
        return WaitStatus(missing=str(error))
    for member in membership.members:
        if member.instance_id in launched and member.has_failed_setup:
            raise ClusterError(f"the setup of {member.short_name} failed: {invocation()} why shows its last lines")
    instances = find_instances(clients.ec2, instance_ids(groups))
    joined = tuple(
        member
        for member in membership.members
        if member.instance_id in launched and not member.draining and instances[member.instance_id].state == RUNNING
    )
    if len(joined) < desired:
        return WaitStatus(missing=f"{desired - len(joined)} of {desired} nodes to join the cluster")
    return WaitStatus(members=joined)


def _failed_launches(clients: Clients, groups: GroupStates, *, since: datetime) -> tuple[Activity, ...]:
    """Return the newest failure per reason; none if the user lacks the permission."""
    try:
        with aws_errors(clients.region):
            activities = read_activities(clients.autoscaling, [group.name for group in groups.values()], since=since)
    except ClusterError:
        return ()
    return tuple(failure.newest for failure in distinct_failures(activities))


def _wait(read_status: Callable[[], WaitStatus], *, timeout_s: float, advice: str) -> WaitStatus:
    """Wait until nothing is missing; print each change and each reason on standard error."""
    deadline, last_missing, printed = time.monotonic() + timeout_s, "", set[tuple[str, str]]()
    while (status := read_status()).missing:
        if status.missing != last_missing:
            print(f"dlcluster: waiting for {status.missing}", file=sys.stderr)
            last_missing = status.missing
        for failure in status.failures:
            if failure.failure_key not in printed:
                print(f"dlcluster: EC2 Auto Scaling: {printable(str(failure))}", file=sys.stderr)
        printed |= {failure.failure_key for failure in status.failures}
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {timeout_s:.0f} s for {status.missing}: {advice}")
        time.sleep(POLL_S)
    return status
