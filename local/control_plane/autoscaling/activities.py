"""Record scaling activities: what a group launched and terminated, and why a launch failed."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.ec2.models.instances import InstanceBackend

from local.control_plane.autoscaling import suspended_processes
from local.control_plane.moto_patching import wrap
from local.data_plane.launch_failures import read_reason
from local.run_dir import RUN_DIR_VARIABLE

_MAX_ACTIVITIES = 1000
"""Number of activities to keep, the newest: a cluster may replace nodes for days."""
_LAUNCHING = "Launching a new EC2 instance"
BOOT_FAILED = (
    "Instance became unhealthy while waiting for instance to be in InService state. "
    "Termination Reason: Server.InternalError: Internal error on launch"
)
"""Auto Scaling's message for an instance that did not boot; the local AWS appends the reason."""


@dataclass(kw_only=True, slots=True)
class Activity:
    """One activity of a group."""

    group: str
    instance_id: str
    description: str
    cause: str
    status: str
    message: str = ""
    start: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    end: datetime | None = None
    activity_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def finish(self) -> None:
        """Mark the activity as over, successful or not."""
        self.end = datetime.now(timezone.utc)

    def described(self) -> dict[str, Any]:
        """Return the activity as DescribeScalingActivities does."""
        described = {
            "ActivityId": self.activity_id,
            "AutoScalingGroupName": self.group,
            "Description": self.description,
            "Cause": self.cause,
            "StartTime": self.start,
            "StatusCode": self.status,
            "StatusMessage": self.message,
            "Progress": 100 if self.end else 50,
        }
        return described | {"EndTime": self.end} if self.end else described


_ACTIVITIES: list[Activity] = []


def install() -> None:
    """Patch moto: record what groups do, and answer DescribeScalingActivities."""
    # Install it outside the wrapper of launch, to record what that launches.
    wrap(FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch)
    wrap(InstanceBackend, "terminate_instances", _terminate)
    wrap(AutoScalingResponse, "describe_scaling_activities", _describe)


def begin_termination(group: str, instance_id: str, cause: str, *, waits: bool) -> None:
    """Record that a group takes an instance out of service; the activity ends when EC2 terminates the instance."""
    cause = f"At {_now()} an instance was taken out of service in response to {cause}."
    status = "MidLifecycleAction" if waits else "InProgress"
    description = f"Terminating EC2 instance: {instance_id}"
    _record(Activity(group=group, instance_id=instance_id, description=description, cause=cause, status=status))


def finish_termination(group: str, instance_id: str) -> None:
    """Finish an instance's activity; if it ended without its group's action, record one first."""
    if not (activity := _unfinished(instance_id)):
        lost = "an EC2 health check indicating it has been terminated or stopped"
        begin_termination(group, instance_id, lost, waits=False)
        activity = _ACTIVITIES[0]
    activity.status = "Successful"
    activity.finish()


def _record(activity: Activity) -> None:
    _ACTIVITIES.insert(0, activity)
    del _ACTIVITIES[_MAX_ACTIVITIES:]


def _record_launch(group: str, instance_id: str = "", failure: str = "") -> None:
    cause = f"At {_now()} an instance was started in response to a difference between desired and actual capacity."
    description = _LAUNCHING + (f": {instance_id}" if instance_id else f".  Status Reason: {failure}")
    status = "Failed" if failure else "Successful"
    activity = Activity(
        group=group, instance_id=instance_id, description=description, cause=cause, status=status, message=failure
    )
    activity.finish()
    _record(activity)


def _now() -> str:
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _launch(original: Any, group: FakeAutoScalingGroup, count: int, tags: dict[str, str]) -> None:
    with recording(group):
        original(group, count, tags)


@contextmanager
def recording(group: FakeAutoScalingGroup) -> Iterator[None]:
    """Record the launches of a group, and the error that ends them."""
    before = {state.instance_id for state in group.instance_states}
    failure = ""
    try:
        yield
    except ServiceException as error:
        failure = f"{error.message.rstrip('.')}. Launching EC2 instance failed."
        raise
    finally:
        for instance_id in [s.instance_id for s in group.instance_states if s.instance_id not in before]:
            _record_launch(group.name, instance_id)
        if failure:
            _record_launch(group.name, failure=failure)


def _terminate(original: Any, backend: Any, instance_ids: list[str]) -> Any:
    for instance in backend.get_multi_instances_by_id(instance_ids):
        group: FakeAutoScalingGroup | None = getattr(instance, "autoscaling_group", None)
        if not group or instance.state == "terminated":
            continue
        if reason := _launch_failure(instance.id):
            _fail_launch(instance.id, reason)
        if _unfinished(instance.id) or suspended_processes.may_replace_unhealthy(group):
            finish_termination(group.name, instance.id)
    return original(backend, instance_ids)


def _launch_failure(instance_id: str) -> str | None:
    """Return why the data plane could not boot an instance; None if it could or there is no data plane."""
    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    return read_reason(Path(run_dir), instance_id) if run_dir else None


def _fail_launch(instance_id: str, reason: str) -> None:
    """Mark the launch as failed, because a group never counts an instance that EC2 ended because it cannot boot."""
    for activity in _ACTIVITIES:
        if activity.instance_id == instance_id and activity.description.startswith(_LAUNCHING):
            activity.status, activity.message = "Failed", f"{BOOT_FAILED}: {reason}"


def _unfinished(instance_id: str) -> Activity | None:
    return next((a for a in _ACTIVITIES if a.instance_id == instance_id and not a.end), None)


def _describe(_original: Any, response: AutoScalingResponse) -> ActionResult:
    backend: AutoScalingBackend = response.autoscaling_backend
    group_name = response._get_param("AutoScalingGroupName")
    group_names = [group_name] if group_name else [*backend.autoscaling_groups]
    activities = [activity.described() for activity in _ACTIVITIES if activity.group in group_names]
    return ActionResult({"Activities": activities})
