"""Choose the worker for an image, take it out of its cluster, and remove from it what must not be in an image."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from bootstrap.contract import SETUP_DONE, SETUP_HASH_LENGTH, WORKER, group_name
from cli.aws.clients import Clients
from cli.aws.clusters import DeployedSetup
from cli.aws.nodes import RUNNING, ClusterNode, check_instance, find_instances, read_membership
from cli.cluster_context import ClusterContext
from cli.errors import ClusterError
from cli.image.baked_workers import mark_chosen, mark_detached, unmark
from cli.jobs.records import running_jobs
from cli.output import printable
from cli.shared_options import invocation
from cli.ssh.from_master import bootstrap_command
from cli.ssh.master_connection import MasterConnection, last_line

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

LEAVE_TIMEOUT_S: Final = 180.0
"""Seconds in which the membership drops a detached worker: its master polls every few seconds."""
CLEAN_TIMEOUT_S: Final = 600.0
"""Seconds for the removal, of homes with a million files too."""
POLL_S: Final = 2.0


def newest_node(context: ClusterContext) -> "InstanceTypeDef":
    """Return EC2's description of the node that was launched last, a worker if there is one."""
    members = context.membership.members
    newest = _launched_last(context, [member for member in members if member.node_type == WORKER] or members)
    return check_instance(context.clients.ec2, newest, cluster_name=context.cluster.name)


def _launched_last(context: ClusterContext, members: Sequence[ClusterNode]) -> ClusterNode:
    """Return the running member that was launched last: a replacement takes the lowest free index."""
    instances = find_instances(context.clients.ec2, [member.instance_id for member in members])
    running = [member for member in members if instances[member.instance_id].state == RUNNING]
    never = datetime.min.replace(tzinfo=timezone.utc)
    return max(
        running or members, key=lambda member: (instances[member.instance_id].launched or never, member.node_index)
    )


def choose_worker(context: ClusterContext, setup: DeployedSetup) -> ClusterNode:
    """Return the newest worker that has the deployed setup and release. Raises ClusterError."""
    cluster = context.cluster
    workers = [member for member in context.membership.members if member.node_type == WORKER]
    if not workers:
        raise ClusterError(f"cluster {cluster.name} has no worker to make an image of: {invocation()} resize 1")
    done = f"{SETUP_DONE}:{setup.sha256[:SETUP_HASH_LENGTH]}"
    ready = [member for member in workers if member.setup == done and not member.draining]
    if not ready:
        raise ClusterError(
            f"no worker has setup {setup.sha256[:SETUP_HASH_LENGTH]}: {invocation()} setup runs it on older nodes"
        )
    current = [member for member in ready if cluster.release in ("", member.release)]
    if not current:
        raise ClusterError(
            f"no worker with the setup runs release {cluster.release}: replace one ({invocation()} status names them)"
        )
    return _launched_last(context, current)


def require_idle(connection: MasterConnection) -> None:
    """Raise ClusterError while a job runs: it would lose the worker."""
    if running := running_jobs(connection):
        raise ClusterError(
            f"job {printable(running[-1])} runs, and would lose a node: {invocation()} stop, or wait for its end"
        )


def detach_worker(context: ClusterContext, worker: ClusterNode, setup: DeployedSetup) -> None:
    """Detach a worker from its group, which launches another in its place, and wait until no list names it."""
    clients, cluster = context.clients, context.cluster
    _detach(clients, worker, group=group_name(cluster.name, WORKER), sha256=setup.sha256)
    print(f"dlcluster: {worker.short_name} leaves the cluster, and another takes its place", file=sys.stderr)
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    while worker.instance_id in _member_ids(context):
        if time.monotonic() >= deadline:
            raise ClusterError(f"waited {LEAVE_TIMEOUT_S:.0f} s for {worker.instance_id} to leave the membership")
        time.sleep(POLL_S)


def _detach(clients: Clients, worker: ClusterNode, *, group: str, sha256: str) -> None:
    ec2, instance_id = clients.ec2, worker.instance_id
    mark_chosen(ec2, instance_id, sha256=sha256)
    # In its group, the cleaned worker would fail the health checks and be terminated before its image is there.
    try:
        clients.autoscaling.detach_instances(
            AutoScalingGroupName=group, InstanceIds=[instance_id], ShouldDecrementDesiredCapacity=False
        )
    except ClientError:
        # After any other error, such as a lost answer, it may be detached.
        with suppress(ClientError):
            unmark(ec2, instance_id)
        raise
    mark_detached(ec2, instance_id, group=group)


def _member_ids(context: ClusterContext) -> set[str]:
    cluster = context.cluster
    membership = read_membership(
        context.clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
    )
    return {member.instance_id for member in membership.members}


def clean(connection: MasterConnection, worker: ClusterNode, setup: DeployedSetup) -> None:
    """Remove keys, homes, logs and node state from the worker's disk. Raises ClusterError."""
    print(f"dlcluster: removing keys, homes, logs and node state from {worker.instance_id}", file=sys.stderr)
    command = bootstrap_command(worker, "prepare-image", "--sha256", setup.sha256)
    done = connection.output(command, timeout_s=CLEAN_TIMEOUT_S)
    if done.exit_code:
        reason = last_line(done.stderr).removeprefix("bootstrap: ") or f"exit code {done.exit_code}"
        raise ClusterError(f"{worker.instance_id} cannot be prepared for an image: {printable(reason)}")
