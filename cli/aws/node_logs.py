"""Read the end of nodes' logs from their cluster's log group, which outlives nodes and stack."""

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from bootstrap.cluster.record_validation import INSTANCE_ID
from cli.output import printable

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient

_KEPT: Final = "\n\t"
"""Control characters to keep in a message, because a traceback has lines and indentation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLog:
    """End of one node's log."""

    instance_id: str
    lines: tuple[str, ...]


def read_log(logs: "CloudWatchLogsClient", group: str, instance_id: str, *, lines: int) -> NodeLog:
    """Return the last lines of a node's log; none if it never reached the log group."""
    try:
        events = logs.get_log_events(logGroupName=group, logStreamName=instance_id, limit=lines, startFromHead=False)[
            "events"
        ]
    except logs.exceptions.ResourceNotFoundException:
        return NodeLog(instance_id=instance_id, lines=())
    return NodeLog(
        instance_id=instance_id,
        lines=tuple(
            f"{_clock(event['timestamp'])} {printable(event['message'].rstrip(), keep=_KEPT)}" for event in events
        ),
    )


def newest_streams(logs: "CloudWatchLogsClient", group: str, *, count: int) -> list[str]:
    """Return the instance ids of the nodes that wrote most recently, newest first."""
    try:
        response = logs.describe_log_streams(logGroupName=group, orderBy="LastEventTime", descending=True, limit=count)
    except logs.exceptions.ResourceNotFoundException:
        return []
    names = (stream["logStreamName"] for stream in response["logStreams"])
    # A node may give its streams any name, and names end up in command lines that users copy.
    return [name for name in names if INSTANCE_ID.fullmatch(name)]


def _clock(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"
