"""Refuse inconsistent sizes of a group, which moto accepts.

A change without a desired capacity moves the current one into the new limits ("UpdateAutoScalingGroup" in the Amazon
EC2 Auto Scaling API Reference); moto moves the number of instances, which differs while some are ending.
"""

from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup

from local.aws.moto_patching import wrap


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
    **named: Any,
) -> None:
    least = (group.min_size if min_size is None else min_size) or 0
    most = (group.max_size if max_size is None else max_size) or 0
    if least > most:
        raise ValidationError(f"Max bound, {most}, must be greater than or equal to min bound, {least}")
    desired = desired_capacity
    if desired is None and (min_size is not None or max_size is not None):
        desired = min(max(group.desired_capacity or 0, least), most)
    if desired is not None and not least <= desired <= most:
        raise ValidationError(
            f"Desired capacity:{desired} must be between the specified min size:{least} and max size:{most}"
        )
    original(group, availability_zones, desired, max_size, min_size, *others, **named)
