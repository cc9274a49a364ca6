"""Scaling activities: what a group launched and terminated, and why a launch failed."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.ec2.models.instances import Instance, InstanceBackend

from local.aws.patching import around

_KEPT = 1000
"""A cluster that replaces nodes for days must not fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """One line of a group's history."""

    group: str
    description: str
    status: str
    message: str
    time: datetime

    def described(self) -> dict[str, Any]:
        """As DescribeScalingActivities returns it."""
        return {
            "ActivityId": str(uuid.uuid4()),
            "AutoScalingGroupName": self.group,
            "Description": self.description,
            "Cause": "a difference between desired and actual capacity",
            "StartTime": self.time,
            "EndTime": self.time,
            "StatusCode": self.status,
            "StatusMessage": self.message,
            "Progress": 100,
        }


_ACTIVITIES: list[Activity] = []


def install() -> None:
    """Record what groups do, and answer DescribeScalingActivities."""
    around(FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch)
    around(InstanceBackend, "terminate_instances", _terminate)
    around(AutoScalingResponse, "describe_scaling_activities", _describe)


def _record(group: str, description: str, status: str = "Successful", message: str = "") -> None:
    now = datetime.now(timezone.utc)
    _ACTIVITIES.insert(0, Activity(group=group, description=description, status=status, message=message, time=now))
    del _ACTIVITIES[_KEPT:]


def _launch(original: Any, group: FakeAutoScalingGroup, count: int, tags: dict[str, str]) -> None:
    before = {state.instance_id for state in group.instance_states}
    try:
        original(group, count, tags)
    except ServiceException as error:
        reason = f"{error.message}. Launching EC2 instance failed."
        _record(group.name, "Launching a new EC2 instance", "Failed", reason)
        raise
    for state in group.instance_states:
        if state.instance_id not in before:
            _record(group.name, f"Launching a new EC2 instance: {state.instance_id}")


def _terminate(original: Any, backend: Any, instance_ids: list[str]) -> Any:
    for instance in backend.get_multi_instances_by_id(instance_ids):
        if (group := _group_of(instance)) and instance.is_running():
            _record(group, f"Terminating EC2 instance: {instance.id}")
    return original(backend, instance_ids)


def _group_of(instance: Instance) -> str | None:
    group = getattr(instance, "autoscaling_group", None)
    return group.name if group else None


def _describe(_original: Any, response: AutoScalingResponse) -> ActionResult:
    backend: AutoScalingBackend = response.autoscaling_backend
    wanted = response._get_param("AutoScalingGroupName")
    known = [wanted] if wanted else [*backend.autoscaling_groups]
    found = [activity.described() for activity in _ACTIVITIES if activity.group in known]
    return ActionResult({"Activities": found})
