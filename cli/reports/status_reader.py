"""Read a cluster's nodes from EC2 and its groups, and the reasons for missing nodes."""

from collections.abc import Sequence

from bootstrap.cluster.record_validation import RecordError
from bootstrap.contract import PAUSE_ID, TABLE_KEY
from bootstrap.idle.pause_record import PauseRecord, parse_pause
from cli.aws.clients import Clients, aws_errors
from cli.aws.nodes import GONE, cluster_instances, is_left_by_bake, summarize_instance
from cli.aws.scaling import NO_GROUPS, Activity, ScalingGroups, distinct_failures, find_groups, read_activities
from cli.cluster_context import ClusterContext
from cli.errors import ClusterError
from cli.reports.capacity_block import parse_deployed_block
from cli.reports.status import Status
from stacks.settings.lifetime import DELETE


def read_status(context: ClusterContext) -> tuple[Status, list[str]]:
    """Return the nodes, and the reasons if some are missing."""
    clients, membership = context.clients, context.membership
    groups, refusals = _groups(clients, context.cluster.name)
    # By the tag rather than by IDs: it also shows workers that a bake has left.
    described = cluster_instances(clients.ec2, context.cluster.name)
    ids = [member.instance_id for member in membership.members]
    status = Status(
        cluster_name=context.cluster.name,
        region=clients.region,
        membership=membership,
        instances={
            instance_id: summarize_instance(described[instance_id]) if instance_id in described else GONE
            for instance_id in ids
        },
        bake_workers=tuple(instance_id for instance_id, instance in described.items() if is_left_by_bake(instance)),
        # The groups have the desired numbers immediately; the membership only after the master's next pass.
        desired_nodes=groups.desired_nodes(default=membership.desired_nodes),
        protected_instances=groups.protected_instances,
        expires=context.cluster.expires,
        capacity_block=parse_deployed_block(context.cluster.capacity_block),
        deletes_stack=context.cluster.expiry_action == DELETE,
        release=context.cluster.release,
        idle_stop=groups.idle_stop,
        pause=_read_pause(clients, context.cluster.table),
    )
    return status, [*refusals, *_reasons(clients, groups)] if status.missing else []


def _read_pause(clients: Clients, table: str) -> PauseRecord:
    """Return the master's record of upcoming pauses; empty if it is bad or the user may not read it."""
    try:
        with aws_errors(clients.region):
            answer = clients.dynamodb.get_item(TableName=table, Key={TABLE_KEY: {"S": PAUSE_ID}})
        return parse_pause(answer["Item"]) if "Item" in answer else PauseRecord()
    except (ClusterError, RecordError):
        return PauseRecord()


def _groups(clients: Clients, cluster_name: str) -> tuple[ScalingGroups, list[str]]:
    """Return the groups; if the user may not list them, none and the refusal, because the table works without them."""
    try:
        with aws_errors(clients.region):
            return find_groups(clients.autoscaling, cluster_name), []
    except ClusterError as error:
        return NO_GROUPS, [str(error)]


def _reasons(clients: Clients, groups: ScalingGroups) -> list[str]:
    try:
        with aws_errors(clients.region):
            return scaling_reasons(read_activities(clients.autoscaling, groups.names, since=groups.since))
    except ClusterError as error:
        return [str(error)]


def scaling_reasons(activities: Sequence[Activity]) -> list[str]:
    """Return EC2's latest failure, and its latest activity if that succeeded, because the failure may be long past."""
    reasons = [f"latest EC2 Auto Scaling failure: {failure}" for failure in distinct_failures(activities)[:1]]
    if activities and not activities[0].is_failure:
        reasons.append(f"latest EC2 Auto Scaling activity: {activities[0]}")
    return reasons
