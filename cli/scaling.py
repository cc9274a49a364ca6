"""What EC2 Auto Scaling did, and EC2's own reason where it could not."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from bootstrap.contract import CLUSTER_TAG

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import ActivityTypeDef

MOST_ACTIVITIES: Final = 100
"""Enough to reach back over some hours of failing launches; the history goes back six weeks."""
_FAILURES: Final = ("Failed", "Cancelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """One launch or termination that a group tried."""

    time: datetime
    group: str
    description: str
    status: str
    reason: str

    @property
    def is_failure(self) -> bool:
        return self.status in _FAILURES

    def __str__(self) -> str:
        told = f"{self.time:%Y-%m-%d %H:%M:%S} {self.group}: {self.description}, {self.status}"
        return f"{told}: {self.reason}" if self.reason else told


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """A cluster's Auto Scaling groups, and the instances in them now."""

    names: tuple[str, ...]
    instance_ids: tuple[str, ...]


def find_groups(autoscaling: "AutoScalingClient", cluster_name: str) -> Groups:
    """The groups that have the cluster's tag."""
    pages = autoscaling.get_paginator("describe_auto_scaling_groups").paginate(
        Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_name]}]
    )
    groups = [group for page in pages for group in page["AutoScalingGroups"]]
    return Groups(
        names=tuple(group["AutoScalingGroupName"] for group in groups),
        instance_ids=tuple(instance["InstanceId"] for group in groups for instance in group.get("Instances", [])),
    )


def read_activities(autoscaling: "AutoScalingClient", groups: Sequence[str]) -> list[Activity]:
    """What groups did, deleted ones too, newest first."""
    found = (activity for group in groups for activity in _activities(autoscaling, group))
    return sorted(map(_activity, found), key=lambda activity: activity.time, reverse=True)


def _activities(autoscaling: "AutoScalingClient", group: str) -> "list[ActivityTypeDef]":
    pages = autoscaling.get_paginator("describe_scaling_activities").paginate(
        AutoScalingGroupName=group, IncludeDeletedGroups=True, PaginationConfig={"MaxItems": MOST_ACTIVITIES}
    )
    return [activity for page in pages for activity in page["Activities"]]


def _activity(found: "ActivityTypeDef") -> Activity:
    return Activity(
        time=found["StartTime"],
        group=found["AutoScalingGroupName"],
        description=found.get("Description", "").removesuffix("."),
        status=found["StatusCode"],
        reason=" ".join(found.get("StatusMessage", "").split()),
    )


def distinct_failures(activities: Sequence[Activity], count: int) -> list[Activity]:
    """The newest failure for each reason: a group without capacity tries again every few minutes."""
    newest = {activity.reason: activity for activity in reversed(activities) if activity.is_failure}
    return sorted(newest.values(), key=lambda activity: activity.time, reverse=True)[:count]
