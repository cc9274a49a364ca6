"""Test that a cluster's end comes while an update waits, and again after the update has started nodes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Group, Stacks
from tests.local.control_plane.scheduler.expiring_cluster import GROUPS, template, wait_until_paused
from tests.local.control_plane.templates import group, hook, launch_template

AFTER_S = 3
"""Seconds until the end; the schedules then act every five minutes, of which the tests' servers shorten each."""
POLICY = {"UpdatePolicy": {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}}
"""Update policy of the product's groups: tests/stacks/test_group_sizes.py."""
GUEST = group(1, signals=1)


def one_more_worker(made: dict[str, Any]) -> None:
    """Add a guest, and one worker behind it."""
    made["Resources"] |= {"Guest": GUEST, "Worker": group(2, AutoScalingGroupName=GROUPS[1]) | POLICY}
    made["Resources"]["Worker"]["DependsOn"] = "Guest"


def another_type(made: dict[str, Any]) -> None:
    """Change the launch template of both groups, and add a guest behind them."""
    made["Resources"] |= {"Guest": GUEST | {"DependsOn": ["Master", "Worker"]}}
    made["Resources"]["Template"] = launch_template(InstanceType="m5.large")


def launches(aws: Aws) -> list[int]:
    """Return how many nodes the master's and the workers' group have ever launched."""
    activities = [Group(aws=aws, name=name).activities() for name in GROUPS]
    return [sum(description.startswith("Launching") for _, description in activity) for activity in activities]


@pytest.mark.parametrize(
    ("change", "signal", "started", "status"),
    [
        (one_more_worker, "SUCCESS", [0, 2], "UPDATE_COMPLETE"),
        (another_type, "FAILURE", [1, 1], "UPDATE_ROLLBACK_COMPLETE"),
    ],
    ids=["update", "rollback"],
)
def test_expiry_happens_during_an_update_and_after_it(
    aws: Aws,
    stacks: Stacks,
    *,
    change: Callable[[dict[str, Any]], None],
    signal: str,
    started: list[int],
    status: str,
) -> None:
    # The update's end starts workers, and its rollback starts all nodes; the next call of the schedules ends them.
    made = template(after_s=AFTER_S)
    for name in ("Master", "Worker"):
        made["Resources"][name] |= POLICY
    stacks.create(made)
    changed = copy.deepcopy(made)
    change(changed)
    stacks.update(changed)
    wait_until_paused(aws)
    assert stacks.status() == "UPDATE_IN_PROGRESS"
    with pytest.raises(ClientError, match="cannot be deleted while in status UPDATE_IN_PROGRESS"):
        stacks.cloudformation.delete_stack(StackName=stacks.names[-1])
    before = launches(aws)
    stacks.signal("Guest", "i-1", signal)
    assert [now - then for now, then in zip(launches(aws), before, strict=True)] == started
    assert stacks.status() == status
    wait_until_paused(aws)


def test_expiry_happens_during_the_cleanup_of_an_update(aws: Aws, stacks: Stacks) -> None:
    made = template(after_s=4)
    drained = group(1, LifecycleHookSpecificationList=[hook(3600)])
    stacks.create(made | {"Resources": made["Resources"] | {"Drained": drained}})
    leaver = Group(aws=aws, name=stacks.physical_id("Drained"))
    stacks.update(made)
    wait_until_paused(aws)
    assert stacks.status() == "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    [waiting] = leaver.waiting()
    leaver.complete(waiting)
