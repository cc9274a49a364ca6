"""Render and parse the record of upcoming pauses, and each node's activity.

Both are hostile until checked here: any process on the master can write the first, and any process on a node the
second.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, cast

from bootstrap.cluster.record_validation import RecordError, check_instance_id, parse_json, shown
from bootstrap.contract import RECORD_VERSION, VERSION_FIELD

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_IDLE_REPORT: Final = re.compile(r"([0-9]{1,12}):([0-9]{1,9})")
PAUSE_FIELD: Final = "pause"
"""Field of the record: a JSON object."""
MAX_SECONDS: Final = 10**9 - 1
"""Longest time of idleness that a record may name, in seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseRecord:
    """The master's knowledge of upcoming pauses; every node and ``dlcluster status`` read it."""

    expires: datetime | None = None
    """Time from which AWS pauses the cluster."""
    block_pauses: datetime | None = None
    """Time from which AWS pauses the cluster because its Capacity Block ends."""
    idle_stop_s: int = 0
    """Seconds of idleness after which the master pauses the cluster; 0 for never."""
    idle_since: datetime | None = None
    """Time since which no node has been busy; None for a busy cluster."""
    pauses_at: datetime | None = None
    """Announced time of the pause of an idle cluster."""
    silent: tuple[str, ...] = ()
    """Instances that no longer report their activity, by ID."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleReport:
    """A node's report about its activity."""

    sequence_number: int
    """Number that differs in each report, so that the reader can measure a report's age by its own clock."""
    idle_s: int
    """Seconds without activity at the time of the report."""


def render_idle_report(report: IdleReport) -> str:
    """Render a node's report for its record."""
    return f"{report.sequence_number}:{report.idle_s}"


def parse_idle_report(text: str) -> IdleReport | None:
    """Return a node's report; None if the text is not a valid report."""
    match = _IDLE_REPORT.fullmatch(text)
    return IdleReport(sequence_number=int(match[1]), idle_s=int(match[2])) if match else None


def render_pause(record: PauseRecord) -> Mapping[str, Mapping[str, Any]]:
    """Render the record as the fields of the table's item."""
    values = {
        "expires": _text(record.expires),
        **({"block_pauses": _text(record.block_pauses)} if record.block_pauses else {}),
        "idle_stop_s": record.idle_stop_s,
        "idle_since": _text(record.idle_since),
        "pauses_at": _text(record.pauses_at),
        "silent": record.silent,
    }
    return {VERSION_FIELD: {"N": str(RECORD_VERSION)}, PAUSE_FIELD: {"S": json.dumps(values)}}


def parse_pause(item: Mapping[str, Mapping[str, Any]]) -> PauseRecord:
    """Parse the table's item, ignoring keys of newer agents. Raises RecordError."""
    text: object = item.get(PAUSE_FIELD, {}).get("S")
    if not isinstance(text, str):
        raise RecordError(f"{PAUSE_FIELD} must be text, got {shown(text)}")
    content = parse_json(PAUSE_FIELD, text)
    if not isinstance(content, dict):
        raise RecordError(f"{PAUSE_FIELD} must be a JSON object, got {shown(content)}")
    values = cast("dict[str, object]", content)
    silent = values.get("silent", [])
    if not isinstance(silent, list):
        raise RecordError(f"silent must be a list, got {shown(silent)}")
    return PauseRecord(
        expires=_time("expires", values),
        block_pauses=_time("block_pauses", values),
        idle_stop_s=_seconds("idle_stop_s", values),
        idle_since=_time("idle_since", values),
        pauses_at=_time("pauses_at", values),
        silent=tuple(map(check_instance_id, silent)),
    )


def parse_seconds(text: str) -> int:
    """Parse a number of seconds from a tag. Raises RecordError."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise RecordError(f"seconds must be a whole number from 0 to {MAX_SECONDS}, got {shown(text)}")
    return int(text)


def parse_time(text: str) -> datetime:
    """Parse a UTC time from a tag or record. Raises RecordError."""
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        raise RecordError(f"time must be like 2026-12-01T18:00:00Z, got {shown(text)}") from None


def _text(time: datetime | None) -> str:
    return "" if time is None else f"{time.astimezone(timezone.utc):{_TIME}}"


def _time(name: str, values: Mapping[str, object]) -> datetime | None:
    text = values.get(name, "")
    if not isinstance(text, str):
        raise RecordError(f"{name} must be text, got {shown(text)}")
    return parse_time(text) if text else None


def _seconds(name: str, values: Mapping[str, object]) -> int:
    number = values.get(name, 0)
    if type(number) is not int or not 0 <= number <= MAX_SECONDS:  # bool is a subclass of int
        raise RecordError(f"{name} must be a whole number from 0 to {MAX_SECONDS}, got {shown(number)}")
    return number
