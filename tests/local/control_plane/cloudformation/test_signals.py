"""Test that a stack waits for the signals of its groups."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.cloudformation.signals import parse_duration
from tests.local.control_plane.harness import Aws, Stacks, wait_for_server
from tests.local.control_plane.templates import cluster, group, reference, resource


def test_stack_completes_only_after_every_signal(stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(2, signals=2)) | {"Outputs": {"Name": {"Value": reference("Group")}}})
    assert stacks.status() == "CREATE_IN_PROGRESS"
    assert stacks.outputs() == {}
    stacks.signal("Group", "i-1")
    assert stacks.status() == "CREATE_IN_PROGRESS"
    assert "CREATE_COMPLETE" not in [status for status, _ in stacks.events("Group")]
    stacks.signal("Group", "i-2")
    assert stacks.status() == "CREATE_COMPLETE"
    assert stacks.outputs() == {"Name": stacks.physical_id("Group")}
    assert stacks.events("Group")[-1][0] == "CREATE_COMPLETE"


def test_two_groups_wait_side_by_side(stacks: Stacks) -> None:
    stacks.create(cluster(One=group(1, signals=1), Two=group(1, signals=1)))
    stacks.signal("Two", "i-2")
    assert stacks.status() == "CREATE_IN_PROGRESS"
    stacks.signal("One", "i-1")
    assert stacks.status() == "CREATE_COMPLETE"


def test_dependants_of_a_group_are_created_after_its_signals(stacks: Stacks) -> None:
    late = resource("Logs::LogGroup", depends_on="Group", LogGroupName="late")
    stacks.create(cluster(Group=group(1, signals=1), Late=late))
    logs: Any = stacks.aws.client("logs")
    assert logs.describe_log_groups(logGroupNamePrefix="late")["logGroups"] == []
    stacks.signal("Group", "i-1")
    assert len(logs.describe_log_groups(logGroupNamePrefix="late")["logGroups"]) == 1


def test_failure_rolls_back_at_once_and_names_the_failed_instance(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(2, signals=2)))
    stacks.signal("Group", "i-1 no route", "FAILURE")
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert ("CREATE_FAILED", "Received FAILURE signal with UniqueId i-1 no route") in stacks.events("Group")
    groups = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert groups == []


def signaled(stacks: Stacks, *, needed: int) -> tuple[str, int]:
    """Create a stack with a short timeout and send it one signal in time; return its name and the timeout."""
    for timeout_s in (1, 10):
        name = f"within-{timeout_s}"
        stacks.create(cluster(Group=group(needed, signals=needed, timeout=f"PT{timeout_s}S")), name)
        try:
            stacks.signal("Group", "i-1", name=name)
        except ClientError:  # this machine was too slow, and the stack has been rolled back
            continue
        return name, timeout_s
    raise AssertionError(f"no signal came within {timeout_s} s")


def test_missing_signals_roll_back_after_the_timeout(stacks: Stacks) -> None:
    name, _ = signaled(stacks, needed=2)
    wait_for_server(lambda: stacks.status(name) == "ROLLBACK_COMPLETE", "the rollback")
    reasons = [reason for _, reason in stacks.events("Group", name)]
    assert "Failed to receive 1 resource signal(s) within the specified duration" in reasons


def test_timeout_has_no_effect_on_a_complete_stack(stacks: Stacks) -> None:
    name, timeout_s = signaled(stacks, needed=1)
    stacks.create(cluster(Group=group(1, signals=1, timeout=f"PT{timeout_s}S")), name="later")
    wait_for_server(lambda: stacks.status("later") == "ROLLBACK_COMPLETE", "the rollback of the later stack")
    assert stacks.status(name) == "CREATE_COMPLETE"


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE"])
def test_signal_after_completion_is_refused(stacks: Stacks, status: str) -> None:
    stacks.create(cluster(Group=group(1, signals=1)))
    stacks.signal("Group", "i-1")
    with pytest.raises(ClientError, match=r"ValidationError.* is in CREATE_COMPLETE state"):
        stacks.signal("Group", "i-2", status)
    assert stacks.status() == "CREATE_COMPLETE"


def test_signal_after_the_required_count_is_refused(stacks: Stacks) -> None:
    stacks.create(cluster(One=group(1, signals=1), Two=group(1, signals=1)))
    stacks.signal("One", "i-1")
    with pytest.raises(ClientError, match="Resource One is in CREATE_COMPLETE state"):
        stacks.signal("One", "i-2")


def test_second_signal_of_an_id_is_refused(stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(2, signals=2)))
    stacks.signal("Group", "i-1")
    with pytest.raises(ClientError, match="Signal with ID i-1 for resource Group already exists"):
        stacks.signal("Group", "i-1")
    assert stacks.status() == "CREATE_IN_PROGRESS"


@pytest.mark.parametrize(
    ("resource_name", "stack"), [("Nobody", "stack"), ("Group", "nobody")], ids=["resource", "stack"]
)
def test_signal_to_something_unknown_is_refused(stacks: Stacks, resource_name: str, stack: str) -> None:
    stacks.create(cluster(Group=group(1, signals=1)))
    with pytest.raises(ClientError, match=r"ValidationError.*does not exist"):
        stacks.signal(resource_name, "i-1", name=stack)


@pytest.mark.parametrize(("duration", "expected"), [("PT15M", 900), ("PT1H", 3600), ("PT30S", 30), ("PT1H2M3S", 3723)])
def test_iso_durations_are_parsed(duration: str, expected: int) -> None:
    assert parse_duration(duration) == expected


@pytest.mark.parametrize("duration", ["15", "PT", "P1D", ""])
def test_malformed_duration_is_refused(duration: str) -> None:
    with pytest.raises(ValueError, match="invalid timeout"):
        parse_duration(duration)
