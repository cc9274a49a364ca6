"""Find out why a deploy failed or a node is missing: query CloudFormation, EC2 and the nodes' logs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cli.aws.clients import Clients, aws_errors
from cli.aws.clusters import Cluster
from cli.aws.node_logs import NodeLog, newest_streams, read_log
from cli.aws.nodes import RUNNING, find_instances, missing_count, read_membership
from cli.aws.orphaned_buckets import orphaned_buckets
from cli.aws.scaling import BEGINNING_OF_TIME, Activity, find_groups, read_activities
from cli.aws.stack_history import Event, StackState, last_failures, physical_ids, read_events
from cli.errors import ClusterError

MAX_NODES: Final = 3
MAX_LINES: Final = 10
_INSTANCE_ID: Final = re.compile(r"\bi-(?:[0-9a-f]{17}|[0-9a-f]{8})\b")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePresence:
    """Result of comparing desired with present nodes."""

    sentence: str = ""
    absent: tuple[str, ...] = ()
    """Instances that are not nodes at present: members that are not running, and instances that have not joined."""
    complete: bool = True
    """False if nodes are missing."""


UNKNOWN_PRESENCE: Final = NodePresence()
"""Stands for a comparison that was not possible: there is no cluster, or AWS did not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Everything that was found out about a cluster's problem."""

    stack: StackState
    cluster_name: str
    failures: tuple[Event, ...]
    """Failures of the last failed deploy or destroy, the cause first."""
    presence: NodePresence
    activities: tuple[Activity, ...]
    """Latest activities of the groups, newest first; empty if nothing is wrong."""
    log_group: str
    """Name of the log group; empty if the stack has none."""
    logs: tuple[NodeLog, ...]
    left_buckets: tuple[str, ...]
    """Buckets of earlier clusters of this name."""
    region: str
    unknown: tuple[str, ...]
    """Questions that could not be answered, with the reason."""


def diagnose(clients: Clients, stack: StackState, cluster: Cluster | None) -> Diagnosis:
    """Query every service that can explain the problem, and note the calls that fail."""
    unknown: list[str] = []

    def ask(call: Callable[[], T], default: T) -> T:
        try:
            with aws_errors(clients.region):
                return call()
        except ClusterError as error:
            unknown.append(str(error))
            return default

    events = read_events(clients.cloudformation, stack.stack_id)
    failures = last_failures(events)
    presence = ask(lambda: _presence(clients, cluster), UNKNOWN_PRESENCE) if cluster else UNKNOWN_PRESENCE
    log_group = "".join(physical_ids(events, "AWS::Logs::LogGroup")[-1:])
    activities: list[Activity] = []
    logs: list[NodeLog] = []
    if failures or not presence.complete:
        groups = physical_ids(events, "AWS::AutoScaling::AutoScalingGroup")
        since = events[0].time if events else BEGINNING_OF_TIME
        activities = ask(lambda: read_activities(clients.autoscaling, groups, since=since), activities)
        suspects = _suspects(failures, presence)
        launched = [found for activity in activities for found in _INSTANCE_ID.findall(activity.description)]
        logs = ask(lambda: _logs(clients, log_group, suspects, launched), logs) if log_group else []
    name = cluster.name if cluster else stack.name
    buckets = ask(
        lambda: orphaned_buckets(clients.tagging, clients.cloudformation, cluster_name=name, events=events), list[str]()
    )
    return Diagnosis(
        stack=stack,
        cluster_name=name,
        failures=tuple(failures),
        presence=presence,
        activities=tuple(activities),
        log_group=log_group,
        logs=tuple(logs),
        left_buckets=tuple(buckets),
        region=clients.region,
        unknown=tuple(unknown),
    )


def _presence(clients: Clients, cluster: Cluster) -> NodePresence:
    membership = read_membership(
        clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
    )
    groups = find_groups(clients.autoscaling, cluster.name)
    desired_nodes = groups.desired_nodes(default=membership.desired_nodes)
    ids = [member.instance_id for member in membership.members]
    instances = find_instances(clients.ec2, ids)
    missing = missing_count(membership, instances, desired_nodes=desired_nodes)
    lost = [instance_id for instance_id in ids if instances[instance_id].state != RUNNING]
    return NodePresence(
        sentence=f"{missing} of {desired_nodes} nodes missing" if missing else f"all {desired_nodes} nodes",
        absent=(*(instance_id for instance_id in groups.instance_ids if instance_id not in ids), *lost),
        complete=not missing,
    )


def _suspects(failures: Sequence[Event], presence: NodePresence) -> list[str]:
    """Return the instances that should be nodes, and those that the failures name."""
    named = (instance_id for event in failures for instance_id in _INSTANCE_ID.findall(event.reason))
    return list(dict.fromkeys([*presence.absent, *named]))[:MAX_NODES]


def _logs(clients: Clients, group: str, suspects: Sequence[str], launched: Sequence[str]) -> list[NodeLog]:
    """Read the suspects' logs.

    Without suspects, read those of the nodes that wrote last or, if none wrote any, of the nodes launched last.
    """
    launched_last = list(dict.fromkeys(launched))[:MAX_NODES]
    wanted = suspects or newest_streams(clients.logs, group, count=MAX_NODES) or launched_last
    return [read_log(clients.logs, group, instance_id, lines=MAX_LINES) for instance_id in wanted]
