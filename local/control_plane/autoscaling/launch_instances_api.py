"""Answer LaunchInstances, which moto lacks: launch instances immediately, in one zone, and report refusals by EC2.

AWS: "Launch instances synchronously" (Amazon EC2 Auto Scaling User Guide) and "LaunchInstances" in the API Reference.
Neither quotes a refusal, so the messages here are our own. If EC2 launches only some instances, these stay, and the
desired capacity grows by their number.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.subnets import Subnet
from moto.ec2.utils import filter_dict_attribute_mapping

from local.control_plane.autoscaling import activities, termination
from local.control_plane.autoscaling.template_launches import launch_instance
from local.control_plane.limits.capacity import SHORTAGES
from local.control_plane.moto_patching import add

MAX_INSTANCES: Final = 100
"""Largest number of instances that one call launches."""
TOKEN_LIFETIME_S: Final = 8 * 3600.0
RETRY: Final = "retry-with-group-configuration"
_STRATEGIES: Final = ("none", RETRY)
_LOCATIONS: Final = ("AvailabilityZones", "AvailabilityZoneIds", "SubnetIds")


class UnsupportedOperationError(AutoscalingClientError):
    """A group with a warm pool cannot use this call."""

    # moto derives an exception's service from its module
    __module__ = "moto.autoscaling.exceptions"
    code = "UnsupportedOperation"


class IdempotentParameterMismatchError(AutoscalingClientError):
    """The client token belongs to another request."""

    __module__ = "moto.autoscaling.exceptions"
    code = "IdempotentParameterMismatch"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """Parameters of a LaunchInstances call."""

    group: str
    count: int
    strategy: str
    zone: str = ""
    zone_id: str = ""
    subnet: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _PastAnswer:
    """A request and its answer, which the same token gets again."""

    request: _Request
    answer: dict[str, Any]
    time: float


_PAST_ANSWERS: Final[dict[str, _PastAnswer]] = {}


def install() -> None:
    """Patch moto: add the call, and find instances by the token of the call that launched them."""
    add(AutoScalingResponse, "launch_instances", _launch_instances)
    filter_dict_attribute_mapping["client-token"] = "client_token"


def _launch_instances(response: AutoScalingResponse) -> ActionResult:
    token, request = response._get_param("ClientToken"), _parse_request(response)
    now = time.monotonic()
    expired = [token for token, past in _PAST_ANSWERS.items() if now - past.time > TOKEN_LIFETIME_S]
    for expired_token in expired:
        del _PAST_ANSWERS[expired_token]
    if previous := _PAST_ANSWERS.get(token):
        if previous.request != request:
            raise IdempotentParameterMismatchError(f"The client token {token} was used with other parameters")
        return ActionResult(previous.answer)
    answer = _launch(response.autoscaling_backend, request, token)
    _PAST_ANSWERS[token] = _PastAnswer(request=request, answer=answer, time=now)
    return ActionResult(answer)


def _parse_request(response: AutoScalingResponse) -> _Request:
    locations = {name: response._get_param(name, []) for name in _LOCATIONS}
    for name, values in locations.items():
        if len(values) > 1:
            raise ValidationError(f"{name} must have length less than or equal to 1, got {len(values)}")
    if locations["AvailabilityZones"] and locations["AvailabilityZoneIds"]:
        raise ValidationError("You cannot specify both AvailabilityZones and AvailabilityZoneIds")
    count, strategy = int(response._get_param("RequestedCapacity")), response._get_param("RetryStrategy", "none")
    if not 1 <= count <= MAX_INSTANCES:
        raise ValidationError(f"RequestedCapacity must be from 1 to {MAX_INSTANCES} instances, got {count}")
    if strategy not in _STRATEGIES:
        raise ValidationError(f"RetryStrategy must be one of {', '.join(_STRATEGIES)}, got {strategy}")
    zone, zone_id, subnet = ("".join(locations[name]) for name in _LOCATIONS)
    group = response._get_param("AutoScalingGroupName")
    return _Request(group=group, count=count, strategy=strategy, zone=zone, zone_id=zone_id, subnet=subnet)


def _launch(backend: AutoScalingBackend, request: _Request, token: str) -> dict[str, Any]:
    group = backend.autoscaling_groups.get(request.group)
    if group is None:
        raise ValidationError(f"AutoScalingGroup name not found - {request.group}")
    template, subnet = _launch_template(group), _choose_subnet(group, request)
    desired = (group.desired_capacity or 0) + request.count
    if desired > (group.max_size or 0):
        message = f"would raise the desired capacity to {desired}, above the max size {group.max_size}"
        raise ValidationError(f"RequestedCapacity {request.count} {message} of {group.name}")
    launched, error = _launch_in_subnet(group, template, subnet, request.count)
    for instance in launched:
        instance.client_token = token
    if error and error.code in SHORTAGES and request.strategy == RETRY:
        group.desired_capacity = desired
        termination.retry_launches(group)
    else:
        group.desired_capacity = desired - request.count + len(launched)
    data = template.get_version(group.launch_template_version).data
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    description = {
        "InstanceType": data.get("InstanceType"),
        "MarketType": "Spot" if market == "spot" else "OnDemand",
        "SubnetId": subnet.id,
        "AvailabilityZone": subnet.availability_zone,
        "AvailabilityZoneId": subnet.availability_zone_id,
    }
    return {
        "AutoScalingGroupName": group.name,
        "ClientToken": token,
        "Instances": [description | {"InstanceIds": [instance.id for instance in launched]}] if launched else [],
        "Errors": [description | {"ErrorCode": error.code, "ErrorMessage": error.message}] if error else [],
    }


def _launch_template(group: FakeAutoScalingGroup) -> LaunchTemplate:
    if group.warm_pool is not None:
        raise UnsupportedOperationError(f"LaunchInstances does not support {group.name}, which has a warm pool")
    if group.mixed_instances_policy:
        raise ValidationError("the local AWS launches no instances of a mixed instances policy by LaunchInstances")
    if group.ec2_launch_template is None:
        raise ValidationError(f"LaunchInstances does not support {group.name}, which has a launch configuration")
    return group.ec2_launch_template


def _choose_subnet(group: FakeAutoScalingGroup, request: _Request) -> Subnet:
    """Return the only subnet of the group that matches the request. Raises ValidationError."""
    group_subnets = _group_subnets(group)
    matching = [subnet for subnet in group_subnets if request.subnet in ("", subnet.id)]
    matching = [subnet for subnet in matching if request.zone in ("", subnet.availability_zone)]
    matching = [subnet for subnet in matching if request.zone_id in ("", subnet.availability_zone_id)]
    if not matching:
        named = " in ".join(filter(None, (request.subnet, request.zone, request.zone_id)))
        raise ValidationError(f"{named} is not a subnet or an Availability Zone of {group.name}")
    if len({subnet.availability_zone for subnet in matching}) > 1:
        raise ValidationError(f"AvailabilityZones or SubnetIds must be specified: {group.name} has several zones")
    return matching[0]


def _group_subnets(group: FakeAutoScalingGroup) -> list[Subnet]:
    if group.vpc_zone_identifier:
        return [group.ec2_backend.get_subnet(subnet_id) for subnet_id in group.vpc_zone_identifier.split(",")]
    default = group.ec2_backend.get_default_subnets()
    return [default[zone] for zone in group.availability_zones]


def _launch_in_subnet(
    group: FakeAutoScalingGroup, template: LaunchTemplate, subnet: Subnet, count: int
) -> tuple[list[Instance], EC2ClientError | None]:
    """Launch up to ``count`` instances; return them with the error that ended the launch."""
    launched: list[Instance] = []
    try:
        with activities.recording(group):
            for _ in range(count):
                launched.append(launch_instance(group, template, subnet_id=subnet.id))
    except EC2ClientError as error:
        return launched, error
    return launched, None
