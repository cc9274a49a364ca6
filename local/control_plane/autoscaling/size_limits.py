"""Refuse inconsistent sizes of a group, which moto accepts.

A change without a desired capacity moves the current one into the new limits ("UpdateAutoScalingGroup" in the Amazon
EC2 Auto Scaling API Reference); moto moves the number of instances, which differs while some are ending.
"""

from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup

from local.control_plane.moto_patching import wrap


def install() -> None:
    """Patch moto: check the sizes of each update."""
    wrap(FakeAutoScalingGroup, "update", _update)


def _update(
    original: Any,
    group: FakeAutoScalingGroup,
    availability_zones: list[str],
    desired_capacity: int | None,
    max_size: int | None,
    min_size: int | None,
    *others: Any,
    **kwargs: Any,
) -> None:
    minimum = (group.min_size if min_size is None else min_size) or 0
    maximum = (group.max_size if max_size is None else max_size) or 0
    if minimum > maximum:
        raise ValidationError(f"Max bound, {maximum}, must be greater than or equal to min bound, {minimum}")
    desired = desired_capacity
    if desired is None and (min_size is not None or max_size is not None):
        desired = min(max(group.desired_capacity or 0, minimum), maximum)
    if desired is not None and not minimum <= desired <= maximum:
        raise ValidationError(
            f"Desired capacity:{desired} must be between the specified min size:{minimum} and max size:{maximum}"
        )
    original(group, availability_zones, desired, max_size, min_size, *others, **kwargs)
