"""Refuse groups that Auto Scaling refuses and moto accepts: settings that exclude each other.

A launch template with InstanceMarketOptions, for spot or for a Capacity Block, excludes a mixed instances policy and a
warm pool. AWS's words for both name Spot Instances alone; those for a Capacity Block are unknown.
"""

from collections.abc import Mapping
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse

from local.control_plane.moto_patching import wrap

_SPECIFICATION: Final = "CapacityReservationSpecification"
_UNRESERVED: Final = ("default", "none")


def install() -> None:
    """Patch moto: check groups when they are created and changed, and before they get a warm pool."""
    wrap(FakeAutoScalingGroup, "create_from_cloudformation_json", _create_from_template)
    for name in ("create_auto_scaling_group", "update_auto_scaling_group"):
        wrap(AutoScalingResponse, name, _answer)
    wrap(FakeAutoScalingGroup, "_set_launch_configuration", _set_launch_configuration)
    wrap(AutoScalingBackend, "put_warm_pool", _put_warm_pool)


def check_reservation(properties: Mapping[str, Any]) -> None:
    """Refuse a group's own reservations, either in AWS's words or because the local AWS would not launch into them."""
    specification = properties.get(_SPECIFICATION, {})
    preference = specification.get("CapacityReservationPreference")
    if preference in _UNRESERVED and specification.get("CapacityReservationTarget"):
        message = "You can't specify CapacityReservationPreference as default or none and provide a"
        raise ValidationError(f"{message} CapacityReservationTarget in the same request")
    if specification and preference not in _UNRESERVED:
        message = "the local AWS launches instances into the reservation of a launch template, not of a group"
        raise ValidationError(f"{message}: got {_SPECIFICATION} {preference}")


def _create_from_template(original: Any, name: str, definition: dict[str, Any], *others: Any, **kwargs: Any) -> Any:
    check_reservation(definition["Properties"])
    return original(name, definition, *others, **kwargs)


def _answer(original: Any, response: AutoScalingResponse) -> Any:
    check_reservation(response._get_params())
    return original(response)


def _set_launch_configuration(
    original: Any,
    group: FakeAutoScalingGroup,
    configuration: str,
    template: dict[str, Any],
    mixed_instances_policy: dict[str, Any] | None,
) -> None:
    original(group, configuration, template, mixed_instances_policy)
    if mixed_instances_policy and _has_market(group):
        message = "Incompatible launch template: You cannot use a launch template that is set to request Spot Instances"
        when = "when you configure an Auto Scaling group with a mixed instances policy"
        advice = "Add a different launch template to the group and try again."
        raise ValidationError(f"{message} (InstanceMarketOptions) {when}. {advice}")


def _put_warm_pool(original: Any, backend: AutoScalingBackend, group_name: str, *others: Any, **kwargs: Any) -> None:
    for group in backend.describe_auto_scaling_groups([group_name]):
        if group.mixed_instances_policy or _has_market(group):
            what = "a mixed instances policy or a launch template or launch configuration that requests Spot Instances"
            raise ValidationError(f"You can't add a warm pool to an Auto Scaling group that has {what}.")
    original(backend, group_name, *others, **kwargs)


def _has_market(group: FakeAutoScalingGroup) -> bool:
    template = group.ec2_launch_template
    return bool(template and template.get_version(group.launch_template_version).data.get("InstanceMarketOptions"))
