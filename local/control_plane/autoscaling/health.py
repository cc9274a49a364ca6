"""Answer SetInstanceHealth: a group ends and replaces an instance that a caller reports as unhealthy.

moto only stores the status. It also defaults ``HealthCheckGracePeriod`` to 300; outside AWS's console the default is 0.
"""

from datetime import timedelta
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import EmptyResult
from moto.core.utils import utcnow

from local.control_plane.autoscaling import termination
from local.control_plane.moto_patching import wrap

_STATUSES = ("Healthy", "Unhealthy")


def install() -> None:
    """Patch moto: act on a reported health status."""
    wrap(AutoScalingResponse, "set_instance_health", _set_instance_health)
    wrap(AutoScalingBackend, "create_auto_scaling_group", _create_group)


def _set_instance_health(_original: Any, response: AutoScalingResponse) -> EmptyResult:
    status = response._get_param("HealthStatus")
    if status not in _STATUSES:
        raise ValidationError(f"Valid instance health states are: [{', '.join(_STATUSES)}].")
    group, instance = termination.find_instance(response.autoscaling_backend, response._get_param("InstanceId"))
    if instance.lifecycle_state != "InService":
        raise ValidationError(f"The instance {instance.instance_id} is not in InService.")
    if response._get_bool_param("ShouldRespectGracePeriod", True) and _in_grace_period(group, instance):
        return EmptyResult()
    if status == "Unhealthy":
        termination.mark_unhealthy(group, instance, "a user health-check")
    else:
        instance.health_status = status
    return EmptyResult()


def _in_grace_period(group: FakeAutoScalingGroup, instance: InstanceState) -> bool:
    """Return True if the instance is in its grace period. Here an instance is in service from its launch on."""
    age: timedelta = utcnow() - instance.instance.launch_time
    return age < timedelta(seconds=group.health_check_grace_period or 0)


def _create_group(original: Any, backend: AutoScalingBackend, **kwargs: Any) -> FakeAutoScalingGroup:
    group: FakeAutoScalingGroup = original(backend, **kwargs)
    group.health_check_grace_period = int(kwargs.get("health_check_period") or 0)
    return group
