"""Format the report of ``dlcluster why``, as text and as JSON."""

from collections.abc import Iterator
from typing import Any, Final

from cli.aws.diagnosis import Diagnosis
from cli.aws.node_logs import NodeLog
from cli.aws.orphaned_buckets import delete_command
from cli.aws.scaling import distinct_failures, newest_of_groups
from cli.aws.stack_history import Event
from cli.output import printable
from stacks.settings.parsing import format_utc

MAX_REASONS: Final = 5


def why_text(diagnosis: Diagnosis) -> str:
    """Return the text, with one block each for the stack, its instances, its nodes' logs and orphaned buckets."""
    blocks = (
        _stack(diagnosis),
        _activities(diagnosis),
        *(_log(diagnosis, log) for log in diagnosis.logs),
        _left(diagnosis),
        _unknown(diagnosis),
    )
    return "\n".join("".join(f"{line}\n" for line in block) for block in map(list, blocks) if block)


def why_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the same as a JSON object; text from nodes is unchanged, because JSON escapes it."""
    return {
        "cluster": diagnosis.cluster_name,
        "region": diagnosis.region,
        "stack": {"name": diagnosis.stack.name, "status": diagnosis.stack.status},
        "nodes": diagnosis.presence.sentence or None,
        "failures": [
            {
                "time": format_utc(event.time),
                "resource": event.logical_id,
                "type": event.resource_type,
                "status": event.status,
                "reason": event.reason,
            }
            for event in diagnosis.failures
        ],
        "activities": [
            {
                "time": format_utc(activity.time),
                "group": activity.group,
                "description": activity.description,
                "status": activity.status,
                "reason": activity.reason,
            }
            for activity in diagnosis.activities
        ],
        "log_group": diagnosis.log_group or None,
        "logs": [{"instance_id": log.instance_id, "lines": list(log.lines)} for log in diagnosis.logs],
        "left_buckets": list(diagnosis.left_buckets),
        "unanswered": list(diagnosis.unknown),
    }


def _stack(diagnosis: Diagnosis) -> Iterator[str]:
    nodes = f", {diagnosis.presence.sentence}" if diagnosis.presence.sentence else ""
    yield f"stack {diagnosis.stack.name} is {diagnosis.stack.status}{nodes}"
    if not diagnosis.failures:
        yield "  no deploy or destroy of it failed"
        return
    yield f"  its last failure, {diagnosis.failures[0].time:%Y-%m-%d %H:%M:%S}, the cause first:"
    yield from map(_failure, diagnosis.failures)


def _failure(event: Event) -> str:
    # A node's signal may contain any text as its id.
    reason = printable(" ".join(event.reason.split())) or "no reason given"
    return f"  {event.logical_id} ({event.resource_type}) {event.status}: {reason}"


def _activities(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield each reason for a failed launch once, and the groups' newest activities: a node may be on its way."""
    failures = distinct_failures(diagnosis.activities)
    if failures:
        failed = sum(failure.count for failure in failures)
        total = len(diagnosis.activities)
        yield f"EC2 Auto Scaling, {failed} of the last {total} activities failed, newest reason first"
        yield from (f"  {failure}" for failure in failures[:MAX_REASONS])
    if len(failures) > MAX_REASONS:
        yield f"  and {len(failures) - MAX_REASONS} older reasons"
    newest = [activity for activity in newest_of_groups(diagnosis.activities) if not activity.is_failure]
    if newest:
        yield "EC2 Auto Scaling, what the groups did last"
        yield from (f"  {activity}" for activity in newest)


def _log(diagnosis: Diagnosis, log: NodeLog) -> Iterator[str]:
    yield f"last log lines of {log.instance_id} (log group {diagnosis.log_group})"
    yield from (f"  {line}" for message in log.lines for line in message.splitlines())
    if not log.lines:
        yield "  none: its agent never reached CloudWatch Logs; the end of the boot log may tell more:"
        yield f"  aws ec2 get-console-output --latest --output text --instance-id {log.instance_id}"


def _left(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.left_buckets:
        return
    heading = f"buckets left by earlier clusters named {diagnosis.cluster_name}, not in use"
    yield f"{heading}; each command deletes one bucket, after asking for confirmation:"
    yield from (f"  {delete_command(bucket, region=diagnosis.region)}" for bucket in diagnosis.left_buckets)


def _unknown(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (f"part of the answer is missing: {reason}" for reason in diagnosis.unknown)
