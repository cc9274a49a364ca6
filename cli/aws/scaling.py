"""Read the activities of EC2 Auto Scaling, with the reasons for failures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from bootstrap.contract import CAPACITY_BLOCK_PAUSES_TAG, CLUSTER_TAG, IDLE_STOP_TAG

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import ActivityTypeDef, InstanceTypeDef

MAX_ACTIVITIES: Final = 100
"""Number of activities to read per group: some hours of failing launches. AWS keeps six weeks."""
_STANDBY: Final = ("EnteringStandby", "Standby")
_LEAVING: Final = ("Terminat", "Detach")
_FAILURES: Final = ("Failed", "Cancelled")
_ONE_CALL_ONLY: Final = re.compile(
    r"\bi-[0-9a-f]{8,17}\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|(?<=Encoded authorization failure message: )\S+"
)
"""Parts in which two messages with the same reason differ: instances, request ids, encoded refusals."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """One launch or termination that a group attempted."""

    time: datetime
    group: str
    description: str
    status: str
    reason: str
    end: datetime | None = None
    """End of the activity; None while it is in progress."""

    @property
    def is_failure(self) -> bool:
        """Return True if the launch or termination failed."""
        return self.status in _FAILURES

    @property
    def failure_key(self) -> tuple[str, str]:
        """Return what repeated failures have in common: the group, and the reason without a single call's IDs."""
        return self.group, _ONE_CALL_ONLY.sub("", self.reason)

    def __str__(self) -> str:
        message = f"{self.time:%Y-%m-%d %H:%M:%S} {self.group}: {self.description}, {self.status}"
        return f"{message}: {self.reason}" if self.reason else message


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedFailure:
    """A group's failures for one reason: the newest, and their number."""

    newest: Activity
    count: int

    def __str__(self) -> str:
        return f"{self.newest} ({self.count} times)" if self.count > 1 else str(self.newest)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingGroups:
    """A cluster's Auto Scaling groups and their current instances."""

    names: tuple[str, ...]
    instance_ids: tuple[str, ...]
    desired: int
    """Sum of the groups' desired capacity."""
    since: datetime
    """Time when the first group was created."""
    protected_instances: Mapping[str, str] = field(default_factory=dict)
    """Instances that scaling in to zero does not terminate, each with the reason (reason_to_survive_pause)."""
    in_block: bool = False
    """True if the nodes run in a Capacity Block, whose dates decide when."""
    idle_stop: timedelta | None = None
    """Time without use after which the master pauses the cluster; None for never."""

    def desired_nodes(self, default: int) -> int:
        """Return the number of nodes that the cluster should have; `default` if no group is known."""
        return self.desired if self.names else default


def reason_to_survive_pause(instance: "InstanceTypeDef") -> str:
    """Return the reason for which scaling in to zero does not terminate an instance; empty if it does.

    See "Temporarily remove instances from your Auto Scaling group" and "Use instance scale-in protection" (Amazon EC2
    Auto Scaling User Guide).
    """
    state = instance["LifecycleState"]
    if state in _STANDBY:
        return "in standby"
    if state.startswith(_LEAVING):
        return ""
    return "protected from scale-in" if instance.get("ProtectedFromScaleIn") else ""


BEGINNING_OF_TIME: Final = datetime.min.replace(tzinfo=timezone.utc)
NO_GROUPS: Final = ScalingGroups(names=(), instance_ids=(), desired=0, since=BEGINNING_OF_TIME)


def find_groups(autoscaling: "AutoScalingClient", cluster_name: str) -> ScalingGroups:
    """Return the groups that have the cluster's tag."""
    pages = autoscaling.get_paginator("describe_auto_scaling_groups").paginate(
        Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_name]}]
    )
    groups = [group for page in pages for group in page["AutoScalingGroups"]]
    instances = [instance for group in groups for instance in group.get("Instances", [])]
    tags = {tag["Key"]: tag.get("Value", "") for group in groups for tag in group.get("Tags", [])}
    return ScalingGroups(
        names=tuple(group["AutoScalingGroupName"] for group in groups),
        instance_ids=tuple(instance["InstanceId"] for instance in instances),
        desired=sum(group["DesiredCapacity"] for group in groups),
        since=min((group["CreatedTime"] for group in groups), default=BEGINNING_OF_TIME),
        protected_instances={
            instance["InstanceId"]: reason for instance in instances if (reason := reason_to_survive_pause(instance))
        },
        in_block=CAPACITY_BLOCK_PAUSES_TAG in tags,
        idle_stop=timedelta(minutes=int(tags.get(IDLE_STOP_TAG, "0")) // 60) or None,
    )


def read_activities(
    autoscaling: "AutoScalingClient", groups: Sequence[str], *, since: datetime, max_items: int | None = MAX_ACTIVITIES
) -> list[Activity]:
    """Return the groups' activities since `since`, newest first.

    Earlier ones belong to deleted groups of the same name. Without `max_items`, read everything that AWS still has of
    each group.
    """
    activities = (_activity(activity) for group in groups for activity in _activities(autoscaling, group, max_items))
    kept = (activity for activity in activities if activity.time >= since)
    return sorted(kept, key=lambda activity: activity.time, reverse=True)


def _activities(autoscaling: "AutoScalingClient", group: str, max_items: int | None) -> "list[ActivityTypeDef]":
    pages = autoscaling.get_paginator("describe_scaling_activities").paginate(
        AutoScalingGroupName=group,
        IncludeDeletedGroups=True,
        PaginationConfig={"MaxItems": max_items} if max_items else {},
    )
    return [activity for page in pages for activity in page["Activities"]]


def _activity(description: "ActivityTypeDef") -> Activity:
    return Activity(
        time=description["StartTime"],
        group=description["AutoScalingGroupName"],
        # A failed launch's description repeats its StatusMessage.
        description=description.get("Description", "").partition(".  Status Reason:")[0].removesuffix("."),
        status=description["StatusCode"],
        reason=" ".join(description.get("StatusMessage", "").split()),
        end=description.get("EndTime"),
    )


def distinct_failures(activities: Sequence[Activity]) -> list[RepeatedFailure]:
    """Return each group's newest failure per reason: without capacity, a group retries every few minutes."""
    alike: dict[tuple[str, str], list[Activity]] = {}
    for activity in activities:
        if activity.is_failure:
            alike.setdefault(activity.failure_key, []).append(activity)
    return [RepeatedFailure(newest=failures[0], count=len(failures)) for failures in alike.values()]


def newest_of_groups(activities: Sequence[Activity]) -> list[Activity]:
    """Return each group's newest activity."""
    newest: dict[str, Activity] = {}
    for activity in activities:
        newest.setdefault(activity.group, activity)
    return list(newest.values())
