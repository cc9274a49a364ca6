"""Define the sizes of a cluster's two Auto Scaling groups, for every program that writes them.

These are CloudFormation (on deploys and rollbacks), the schedule of ``expires``, the master of an idle cluster, and
``dlcluster`` (pause, resume, resize). docs/how/sizes.md describes what each does to a group in each state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

from bootstrap.contract import NodeType


class SizeRequest(TypedDict):
    """Parameters of UpdateAutoScalingGroup."""

    AutoScalingGroupName: str
    MinSize: int
    MaxSize: int
    DesiredCapacity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSize:
    """MinSize, DesiredCapacity and MaxSize of a group."""

    min_size: int
    desired_capacity: int
    max_size: int

    @property
    def is_paused(self) -> bool:
        """Return True if the group has no nodes and launches none."""
        return self == PAUSED

    @property
    def is_valid(self) -> bool:
        """Return True if Auto Scaling accepts the three numbers together."""
        return 0 <= self.min_size <= self.desired_capacity <= self.max_size

    def request(self, group: str) -> SizeRequest:
        """Return the request that sets a group's three numbers together."""
        return SizeRequest(
            AutoScalingGroupName=group,
            MinSize=self.min_size,
            MaxSize=self.max_size,
            DesiredCapacity=self.desired_capacity,
        )


ClusterSizes = Mapping[NodeType, GroupSize]
"""Sizes of both groups."""

PAUSED: Final = GroupSize(min_size=0, desired_capacity=0, max_size=0)
"""Size of a paused group: MaxSize 0 keeps Auto Scaling from launching any node."""


def size_after_update(now: GroupSize, *, old: GroupSize, new: GroupSize) -> GroupSize:
    """Return the size after a stack update, given the sizes in its old and its new template.

    With IgnoreUnmodifiedGroupSizeProperties, CloudFormation applies only the numbers that differ between the templates.
    """
    return GroupSize(
        min_size=now.min_size if old.min_size == new.min_size else new.min_size,
        desired_capacity=now.desired_capacity if old.desired_capacity == new.desired_capacity else new.desired_capacity,
        max_size=now.max_size if old.max_size == new.max_size else new.max_size,
    )
