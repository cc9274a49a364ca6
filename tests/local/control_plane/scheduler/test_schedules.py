"""Test that the schedules of stacks/lifetime/expiry.py repeatedly call AWS, and that their role may do nothing else."""

import json
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import PAUSED
from local.control_plane.scheduler import schedules
from local.control_plane.scheduler.schedules import Schedule, ScheduleError
from stacks.settings.lifetime import DELETE_AFTER
from tests.local.control_plane.harness import REGION, Aws, Group, Stacks, session_keys
from tests.local.control_plane.scheduler.expiring_cluster import GROUPS, template, wait_until_paused
from tests.local.control_plane.templates import resource
from tests.waiting import wait_until


def launches(aws: Aws, name: str) -> int:
    """Count the launches of all groups that have had this name."""
    activities = Group(aws=aws, name=name).activities()
    return sum(description.startswith("Launching") for _, description in activities)


def test_schedule_empties_both_groups_at_its_time(aws: Aws, stacks: Stacks) -> None:
    # Auto Scaling also reports the activities of deleted groups, and other tests name theirs like these.
    before = {name: launches(aws, name) for name in GROUPS}
    stacks.create(template(after_s=2))
    wait_until_paused(aws)
    assert {name: launches(aws, name) - before[name] for name in GROUPS} == dict.fromkeys(GROUPS, 1)


def test_expiry_happens_after_a_failed_deletion(aws: Aws, stacks: Stacks) -> None:
    # Nodes that a stack in DELETE_FAILED has left cost as much as any.
    made, s3 = template(after_s=4), aws.client("s3")
    resources = made["Resources"]
    parts = [name for name in resources if name.startswith("Expiry")]
    for name in parts:
        resources[name].pop("DependsOn", None)
    for name in ("Master", "Worker"):  # as in the product: tests/stacks/lifetime/test_expiry.py
        resources[name]["DependsOn"] = parts
    resources["Bucket"] = resource("S3::Bucket", depends_on=["Master", "Worker"])
    stacks.create(made)
    bucket = stacks.physical_id("Bucket")
    s3.put_object(Bucket=bucket, Key="checkpoint", Body=b"weights")
    try:
        stacks.cloudformation.delete_stack(StackName=stacks.names[-1])
        assert stacks.status() == "DELETE_FAILED"
        wait_until_paused(aws)
        for name in GROUPS:
            newest, *_ = terminations(aws, name)
            assert "shrinking the capacity from 1 to 0" in newest, "the deletion has not ended the node"
    finally:
        s3.delete_object(Bucket=bucket, Key="checkpoint")


def terminations(aws: Aws, name: str) -> list[str]:
    """Return why each node of a group of this name was ended, newest first."""
    activities = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=name)["Activities"]
    return [activity["Cause"] for activity in activities if activity["Description"].startswith("Terminating")]


def test_schedule_deletes_the_stack_at_its_time(aws: Aws, stacks: Stacks) -> None:
    made = template(after_s=2 - DELETE_AFTER.total_seconds(), deletes=True)
    # The pause, whose time has already come, would also end the nodes.
    pauses = [name for name, resource in made["Resources"].items() if "updateAutoScalingGroup" in json.dumps(resource)]
    stacks.create(
        made | {"Resources": {name: resource for name, resource in made["Resources"].items() if name not in pauses}}
    )
    assert len(pauses) == 2
    wait_until(lambda: stacks.names[-1] not in existing(aws), "the deletion", timeout_s=60)
    left = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[*GROUPS])
    assert left["AutoScalingGroups"] == []


def existing(aws: Aws) -> set[str]:
    return {stack["StackName"] for stack in aws.client("cloudformation").describe_stacks()["Stacks"]}


@pytest.fixture(scope="module")
def lasting() -> dict[str, Any]:
    return template(after_s=3600)


@pytest.mark.parametrize("size", [{}, {"MinSize": 1}, {"MaxSize": 1}, {"MinSize": None}, {"MaxSize": None}], ids=str)
def test_role_may_set_nothing_but_zero(aws: Aws, stacks: Stacks, lasting: dict[str, Any], size: dict[str, Any]) -> None:
    stacks.create(lasting)
    [policy] = [
        resource for name, resource in lasting["Resources"].items() if name.startswith("ExpiryRoleDefaultPolicy")
    ]
    [role] = [reference["Ref"] for reference in policy["Properties"]["Roles"]]
    keys = session_keys(aws, f"arn:aws:iam::123456789012:role/{stacks.physical_id(role)}", "schedule")
    request = {name: value for name, value in {**PAUSED.request(GROUPS[0]), **size}.items() if value is not None}
    update = aws.client("autoscaling", **keys).update_auto_scaling_group
    if size:
        with pytest.raises(ClientError, match="is not authorized to perform: autoscaling:UpdateAutoScalingGroup"):
            update(**request)
    else:
        update(**request)


def properties(*, after_s: float) -> dict[str, Any]:
    start = datetime.now(timezone.utc) + timedelta(seconds=after_s)
    return {
        "ScheduleExpression": "rate(5 minutes)",
        "StartDate": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup",
            "RoleArn": "arn:aws:iam::123456789012:role/end",
            "Input": json.dumps(PAUSED.request(GROUPS[0])),
        },
    }


def test_schedule_acts_again_after_a_refused_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def call(target: schedules.ScheduleTarget, _region: str) -> None:
        calls.append(target.parameters)
        if len(calls) == 1:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, target.action)

    monkeypatch.setattr(schedules.ScheduleTarget, "call", call)
    monkeypatch.setitem(schedules._UNIT_S, "minute", 0.002)
    schedule = Schedule(properties(after_s=0), REGION)
    wait_until(lambda: len(calls) >= 3, "the third call", timeout_s=60)
    schedule.end()
    schedule._thread.join(60)
    made = len(calls)
    time.sleep(0.1)
    assert len(calls) == made
    assert calls[:3] == [PAUSED.request(GROUPS[0])] * 3


def test_start_long_in_the_past_is_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot be earlier than 5 minutes ago"):
        Schedule(properties(after_s=-400), REGION)


@pytest.mark.parametrize("in_s", [0.5, -2.0])
def test_yearly_time_with_an_end_fires_once_and_never_if_past(in_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # This is a Capacity Block's start: a deploy during the block also creates the schedule, and changes no size.
    calls: list[object] = []
    monkeypatch.setattr(schedules.ScheduleTarget, "call", lambda target, _region: calls.append(target.parameters))
    now = datetime(2026, 11, 23, 11, 30, tzinfo=timezone.utc) - timedelta(seconds=in_s)
    made = properties(after_s=0) | {"ScheduleExpression": "cron(30 11 23 11 ? *)", "EndDate": "2027-05-01T10:50:00Z"}
    schedule = Schedule(made, REGION, now=now)
    if in_s > 0:
        wait_until(lambda: calls, "the call", timeout_s=60)
    time.sleep(0.5)
    schedule.end()
    assert len(calls) == (1 if in_s > 0 else 0)
