"""Test the table of ``local-aws status``."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from local.commands.status import duration, is_shown, node_state, row, table
from local.faults.node_handle import NodeHandle

NOW = datetime(2026, 5, 6, 12, 0, 0, tzinfo=timezone.utc)


def instance(state: str, reason: str = "") -> dict[str, Any]:
    return {
        "InstanceId": "i-1",
        "State": {"Name": state},
        "StateTransitionReason": reason,
        "LaunchTime": NOW - timedelta(seconds=75),
        "PrivateIpAddress": "10.0.0.4",
        "Tags": [{"Key": "Name", "Value": "master"}],
    }


def node(directory: Path) -> NodeHandle:
    return NodeHandle(instance_id="i-1", directory=directory / "i-1", cgroup=directory / "cgroup")


def test_node_waits_then_boots_then_is_ready(tmp_path: Path) -> None:
    assert node_state(node(tmp_path)) == "waiting"
    finished = tmp_path / "i-1/disk/upper/var/lib/cloud/instances/i-1/boot-finished"
    (tmp_path / "i-1").mkdir()
    assert node_state(node(tmp_path)) == "booting"
    finished.parent.mkdir(parents=True)
    finished.touch()
    assert node_state(node(tmp_path)) == "ready"


def test_node_that_hangs_is_frozen(tmp_path: Path) -> None:
    (tmp_path / "i-1").mkdir()
    (tmp_path / "cgroup").mkdir()
    events = tmp_path / "cgroup/cgroup.events"
    events.write_text("populated 1\nfrozen 1\n")
    assert node_state(node(tmp_path)) == "frozen"
    events.write_text("populated 1\nfrozen 0\n")
    assert node_state(node(tmp_path)) == "booting"


def test_status_table_has_one_row_per_instance(tmp_path: Path) -> None:
    assert table([row(instance("running"), node=node(tmp_path), alias="worker2", now=NOW)]) == (
        "INSTANCE  NAME    ALIAS    STATE    NODE     ADDRESS   PUBLIC ADDRESS  UP\n"
        "i-1       master  worker2  running  waiting  10.0.0.4  -               1 min 15 s\n"
    )
    assert table([]) == "no instances\n"


@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [
        ("running", "", True),
        ("terminated", "User initiated (2026-05-06 11:56:00 UTC)", True),
        ("terminated", "User initiated (2026-05-06 11:54:00 UTC)", False),
        ("terminated", "", False),
    ],
)
def test_terminated_instance_is_shown_for_a_while(state: str, reason: str, shown: bool) -> None:
    assert is_shown(instance(state, reason), NOW) is shown


@pytest.mark.parametrize(("seconds", "text"), [(9, "9 s"), (75, "1 min 15 s"), (7500, "2 h 05 min")])
def test_durations_are_formatted(seconds: int, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text
