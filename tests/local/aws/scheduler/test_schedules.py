"""A stack's schedule really calls its target, as its role and with no more than its role's permissions."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import PAUSED
from local.aws.scheduler.schedules import Schedule, ScheduleError
from tests.local.aws.harness import REGION, Aws, Group, Role, Stacks, policy
from tests.local.aws.templates import cluster, group, resource
from tests.waiting import await_true

GROUP = "ends"
ZERO = {
    "Action": "autoscaling:UpdateAutoScalingGroup",
    "Resource": f"arn:aws:autoscaling:{REGION}:123456789012:autoScalingGroup:*:autoScalingGroupName/{GROUP}",
    "Condition": {"NumericEquals": {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}},
}


def properties(role: Role, *, after_s: float, **request: Any) -> dict[str, Any]:
    start = datetime.now(timezone.utc) + timedelta(seconds=after_s)
    target = {
        "Arn": "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup",
        "RoleArn": role.arn,
        "Input": json.dumps({**PAUSED.request(GROUP), **request}),
    }
    return {
        "ScheduleExpression": "rate(1 minute)",
        "StartDate": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": target,
    }


def template(role: Role, *, after_s: float) -> dict[str, Any]:
    made = cluster(Group=group(2, AutoScalingGroupName=GROUP))
    made["Resources"]["End"] = resource("Scheduler::Schedule", **properties(role, after_s=after_s))
    return made


def test_the_group_is_empty_once_the_time_has_come(aws: Aws, stacks: Stacks, role: Role) -> None:
    role.allow(policy(ZERO))
    stacks.create(template(role, after_s=2))

    found = Group(aws=aws, name=GROUP)
    await_true(lambda: not found.members(), "the schedule", timeout_s=20)
    size = found.described()
    assert (size["MinSize"], size["DesiredCapacity"], size["MaxSize"]) == (0, 0, 0)
    assert sum(description.startswith("Launching") for _, description in found.activities()) == 2


@pytest.mark.parametrize("size", [{"MinSize": 1}, {"MaxSize": 1}, {"MinSize": None}, {"MaxSize": None}], ids=str)
def test_the_role_may_set_nothing_but_zero(aws: Aws, stacks: Stacks, role: Role, size: dict[str, Any]) -> None:
    role.allow(policy(ZERO))
    stacks.create(cluster(Group=group(1, AutoScalingGroupName=GROUP)))
    keys = role.session("schedule")
    request = {name: value for name, value in {**PAUSED.request(GROUP), **size}.items() if value is not None}
    with pytest.raises(ClientError, match="is not authorized to perform: autoscaling:UpdateAutoScalingGroup"):
        aws.client("autoscaling", **keys).update_auto_scaling_group(**request)


def test_fails_when_the_start_is_long_past(role: Role) -> None:
    with pytest.raises(ScheduleError, match="cannot be earlier than 5 minutes ago"):
        Schedule(properties(role, after_s=-400), REGION)
