"""Terminate every node of a fleet, including those that EC2 is still launching for an unanswered call."""

import sys
import time
from collections.abc import Sequence
from typing import Final

from botocore.exceptions import ClientError

from bootstrap.contract import NODE_TYPES, group_name
from cli.aws.clients import Clients
from cli.aws.clusters import Cluster
from cli.aws.nodes import TERMINATE_COMMAND
from cli.cluster_lock import Lock
from cli.errors import ClusterError
from cli.node_groups.groups import instance_ids, is_paused, pause_groups, protected_instances, read_groups
from cli.node_groups.waiting import wait_until_gone
from cli.up.attempt import ZoneAttempt, forget_attempt, recorded_attempt

POLL_S: Final = 5.0
EMPTY_POLLS_REQUIRED: Final = 24
"""Number of consecutive polls, over two minutes, that must find no instance after a launch that AWS did not answer."""
TERMINATION_TIMEOUT_S: Final = 600.0
"""Timeout for a fleet to terminate, in seconds.

It is shorter than a pause's: no ranks save on an incomplete fleet, and the lock would become stale
(cli.cluster_lock.LEASE_S).
"""
LATE_TIMEOUT_S: Final = 600.0
"""Timeout for the termination of instances that arrived late, in seconds."""
CHANGE_TIMEOUT_S: Final = 120.0
_BUSY: Final = ("ScalingActivityInProgress", "ResourceContention")


def terminate_fleet(clients: Clients, cluster: Cluster, lock: Lock, *, may_still_launch: bool = False) -> None:
    """Terminate every node, and wait until all are gone. Raises ClusterError.

    With ``may_still_launch``, keep watching for two minutes, because an unanswered launch may still start instances.
    """
    groups = read_groups(clients.autoscaling, cluster.name)
    attempt = recorded_attempt(groups)
    if instances := instance_ids(groups):
        print(f"dlcluster: terminating {', '.join(instances)}", file=sys.stderr)
    if not is_paused(groups):
        _pause(clients, cluster.name)
        lock.acquire_or_renew()  # all waits together are longer than cli.cluster_lock.LEASE_S
    if survivors := protected_instances(groups):
        raise ClusterError(
            f"{', '.join(survivors)} would keep running: run dlcluster pause to terminate them, then dlcluster up"
        )
    wait_until_gone(clients, cluster, timeout_s=TERMINATION_TIMEOUT_S)
    lock.acquire_or_renew()
    _wait_for_late_instances(clients, cluster, attempt, polls=EMPTY_POLLS_REQUIRED if may_still_launch else 1)
    lock.acquire_or_renew()  # the tag is the next owner's if one took over during the wait
    forget_attempt(clients, cluster.name)


def _pause(clients: Clients, name: str) -> None:
    """Set both groups to zero, retrying while Auto Scaling is busy with them."""
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    while True:
        try:
            return pause_groups(clients, name)
        except ClientError as error:
            if not error.response["Error"].get("Code", "").startswith(_BUSY) or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _wait_for_late_instances(clients: Clients, cluster: Cluster, attempt: ZoneAttempt | None, *, polls: int) -> None:
    """Wait until `polls` consecutive polls find no instance of the fleet. Raises ClusterError."""
    deadline, empty = time.monotonic() + LATE_TIMEOUT_S, 0
    if polls > 1:
        print(f"dlcluster: watching {polls * POLL_S:.0f} s for late instances", file=sys.stderr)
    while True:
        late = _running(clients, cluster.name, attempt)
        empty = 0 if late else empty + 1
        if empty >= polls:
            return
        if late and time.monotonic() > deadline:
            advice = f"terminate them: {TERMINATE_COMMAND} {' '.join(late)}"
            raise ClusterError(f"waited {LATE_TIMEOUT_S:.0f} s for late nodes to terminate; {advice}")
        time.sleep(POLL_S)


def _running(clients: Clients, name: str, attempt: ZoneAttempt | None) -> list[str]:
    """Return the instances that cost money, found by group and by the attempt's tokens, since either may miss some."""
    groups = [group_name(name, node_type) for node_type in NODE_TYPES]
    instances = _find(clients, "tag:aws:autoscaling:groupName", groups)
    if attempt is not None:
        instances |= _find(clients, "client-token", attempt.client_tokens)
    return sorted(instances)


def _find(clients: Clients, filter_name: str, values: Sequence[str]) -> set[str]:
    pages = clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": filter_name, "Values": list(values)},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    )
    reservations = [reservation for page in pages for reservation in page["Reservations"]]
    return {instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]}
