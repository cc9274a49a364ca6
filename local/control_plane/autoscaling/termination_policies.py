"""Choose the instances that a shrinking group ends, by its termination policies.

moto ends the first ones of an internal list. AWS: "Configure termination policies for Amazon EC2 Auto Scaling".
AWS balances zones before it applies policies; groups here have one zone.
"""

from collections.abc import Callable
from datetime import datetime, timezone

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState

_HOUR_S = 3600

_Rank = Callable[[InstanceState], float]
"""Sort key: instances with the lowest value end first."""


def order(group: FakeAutoScalingGroup) -> list[InstanceState]:
    """Return the instances in the order in which they end; each policy breaks the ties of the previous one."""
    ranks = [rank for policy in group.termination_policies for rank in _ranks(policy)]
    return sorted(group.instance_states, key=lambda instance: [rank(instance) for rank in ranks])


def _ranks(policy: str) -> list[_Rank]:
    if policy not in _POLICIES:
        raise ValidationError(f"the local AWS does not know the termination policy {policy}")
    return _POLICIES[policy]


def _launched(instance: InstanceState) -> float:
    # moto's times are UTC without a time zone
    time: datetime = instance.instance.launch_time
    return time.replace(tzinfo=timezone.utc).timestamp()


def _launched_last(instance: InstanceState) -> float:
    return -_launched(instance)


def _template_version(instance: InstanceState) -> float:
    template = instance.launch_template
    return int(template["Version"]) if template else 0


def _closest_to_next_hour(instance: InstanceState) -> float:
    return -((datetime.now(timezone.utc).timestamp() - _launched(instance)) % _HOUR_S)


_POLICIES: dict[str, list[_Rank]] = {
    "Default": [_template_version, _closest_to_next_hour],
    "NewestInstance": [_launched_last],
    "OldestInstance": [_launched],
    "OldestLaunchTemplate": [_template_version],
    "ClosestToNextInstanceHour": [_closest_to_next_hour],
}
