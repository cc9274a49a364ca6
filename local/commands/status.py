"""Print the instances of a local AWS as a table: EC2's report, and the progress of each node."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3

from local.data_plane.errors import read_errors
from local.data_plane.launch_failures import read_failures
from local.faults.node_handle import NodeHandle, node_handle
from local.faults.node_indexes import aliases, members_by_cluster
from local.faults.targets import ENDED_STATES
from local.node.container import is_frozen
from local.node.inotify_limit import inotify_shortage
from local.run_dir import current_run_dir

COLUMNS = ("INSTANCE", "NAME", "ALIAS", "STATE", "NODE", "ADDRESS", "PUBLIC ADDRESS", "UP")
SHOWN_AFTER_END = timedelta(minutes=5)
FAILURES_SHOWN = 3
_ENDED = "User initiated (%Y-%m-%d %H:%M:%S %Z)"


def node_state(node: NodeHandle) -> str:
    """Return a running instance's progress: waiting, booting, frozen or ready (its user data has run)."""
    if not node.directory.exists():
        return "waiting"
    if is_frozen(node.cgroup):
        return "frozen"
    booted = node.directory / f"disk/upper/var/lib/cloud/instances/{node.instance_id}/boot-finished"
    return "ready" if booted.exists() else "booting"


def duration(span: timedelta) -> str:
    """Format a time span for people."""
    minutes, seconds = divmod(int(span.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def is_shown(instance: Mapping[str, Any], now: datetime) -> bool:
    """Return True if an instance exists or ended only recently."""
    if instance["State"]["Name"] not in ENDED_STATES:
        return True
    reason = instance.get("StateTransitionReason", "")
    try:
        ended = datetime.strptime(reason, _ENDED).replace(tzinfo=timezone.utc)
    except ValueError:
        return False
    return now - ended < SHOWN_AFTER_END


def row(instance: Mapping[str, Any], *, node: NodeHandle, alias: str, now: datetime) -> tuple[str, ...]:
    state, has_ended = instance["State"]["Name"], instance["State"]["Name"] in ENDED_STATES
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    return (
        instance["InstanceId"],
        tags.get("Name", "-"),
        alias,
        state,
        "-" if has_ended else node_state(node),
        instance.get("PrivateIpAddress") or "-",
        instance.get("PublicIpAddress") or "-",
        "-" if has_ended else duration(now - instance["LaunchTime"]),
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Format rows below the column names, or report that there are no instances."""
    if not rows:
        return "no instances\n"
    lines = [COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


def error_lines(run_dir: Path) -> str:
    """List what the data plane currently cannot do, and why, because the user may be waiting for a node."""
    return "".join(
        f"cannot update {name}, will retry: {reason}\n" for name, reason in sorted(read_errors(run_dir).items())
    )


def launch_failure_lines(run_dir: Path) -> str:
    """List the instances that recently could not boot; they are gone, and their groups launch others."""
    newest = list(read_failures(run_dir).items())[-FAILURES_SHOWN:]
    return "".join(f"{name} did not boot and was terminated: {reason}\n" for name, reason in newest)


def status_text(run_dir: Path, now: datetime) -> str:
    """Describe the current local AWS."""
    reservations = boto3.client("ec2").describe_instances()["Reservations"]
    instances = [i for r in reservations for i in r["Instances"] if is_shown(i, now)]
    alias_by_instance = aliases(members_by_cluster(run_dir))
    rows = [
        row(i, node=node_handle(run_dir, i["InstanceId"]), alias=alias_by_instance.get(i["InstanceId"], "-"), now=now)
        for i in sorted(instances, key=lambda i: i["LaunchTime"])
    ]
    waiting = sum(line[COLUMNS.index("NODE")] == "waiting" for line in rows)
    shortage = inotify_shortage(waiting) if waiting else None
    return (
        table(rows)
        + (f"nodes wait: {shortage}\n" if shortage else "")
        + error_lines(run_dir)
        + launch_failure_lines(run_dir)
    )


def print_status() -> int:
    """Print the status for ``local-aws status``."""
    text = status_text(current_run_dir(), datetime.now(timezone.utc))
    print(text, end="")
    return 0
