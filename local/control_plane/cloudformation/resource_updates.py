"""Change resources of a stack in place, like AWS, if moto would replace or ignore them."""

import copy
from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.parsing import clean_json, get_model_map, parse_and_update_resource
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.logs.models import LogGroup, logs_backends

from local.control_plane import efs
from local.control_plane.autoscaling import group_checks, lifecycle_hooks
from local.control_plane.ec2 import prefix_lists, security_groups
from local.control_plane.iam_api import managed_policies

_Definition = dict[str, Any]

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_FILE_SYSTEM = "AWS::EFS::FileSystem"
_GROUP_NAME = "AutoScalingGroupName"
_SIZES = ("MinSize", "MaxSize", "DesiredCapacity")

_DEFINITIONS: dict[tuple[str, str], _Definition] = {}
"""Definition from which each resource was last created or updated, references resolved, by stack ID and logical ID."""


def definition(stack: Stack, logical_id: str) -> _Definition:
    """Return the resource's part of the template with its references resolved."""
    resolved: _Definition = clean_json(stack.resource_map._resource_json_map[logical_id], stack.resource_map)
    return copy.deepcopy(resolved)


def record_definition(stack: Stack, logical_id: str) -> _Definition:
    """Record and return the current definition, from which the resource has just been created or updated."""
    _DEFINITIONS[stack.stack_id, logical_id] = current = definition(stack, logical_id)
    return current


def recorded_definition(stack: Stack, logical_id: str) -> _Definition:
    """Return the definition from which the resource was last created or updated."""
    return _DEFINITIONS[stack.stack_id, logical_id]


def forget(stack: Stack, logical_id: str) -> None:
    """Forget a deleted resource."""
    _DEFINITIONS.pop((stack.stack_id, logical_id), None)


def changed(stack: Stack, logical_id: str) -> bool:
    """Return True if the template, its parameters or a referenced resource require a change."""
    before = _DEFINITIONS.get((stack.stack_id, logical_id), {})
    return bool(before.get("Properties", {}) != definition(stack, logical_id).get("Properties", {}))


def update(stack: Stack, logical_id: str, *, back: bool = False) -> None:
    """Update the resource to the current template; ``back`` restores its state before a failed update."""
    parsed = stack.resource_map._parsed_resources
    resource, old, new = parsed[logical_id], recorded_definition(stack, logical_id), definition(stack, logical_id)
    _check_replacement(old, new)
    in_place = _set_tags(stack, logical_id, resource, old, new) and _without_tags(old) == _without_tags(new)
    if in_place:
        record_definition(stack, logical_id)
        return
    _check_updatable(new["Type"])
    try:
        parsed[logical_id] = _updated(stack, logical_id, resource, old, new, back=back)
    finally:
        # A refused update may be half done; because it is recorded, the rollback reverts it.
        record_definition(stack, logical_id)


def _check_updatable(resource_type: str) -> None:
    moto_can = not hasattr(get_model_map()[resource_type].update_from_cloudformation_json, "__isabstractmethod__")
    if resource_type not in _IN_PLACE and not moto_can:
        raise ValidationError(message=f"the local AWS cannot update a resource of type {resource_type}")


def _check_replacement(old: _Definition, new: _Definition) -> None:
    """Refuse a change for which AWS creates another resource in place of this one."""
    if new["Type"] == _FILE_SYSTEM:
        efs.check_update(old["Properties"], new["Properties"])
    if new["Type"] != _GROUP:
        return
    before, after = (definition["Properties"].get(_GROUP_NAME) for definition in (old, new))
    if before != after:
        raise ValidationError(message=f"the local AWS cannot replace a group: {_GROUP_NAME} {before} -> {after}")


def _updated(stack: Stack, logical_id: str, resource: Any, old: _Definition, new: _Definition, *, back: bool) -> Any:
    if in_place := _IN_PLACE.get(new["Type"]):
        in_place(resource, old["Properties"], new["Properties"] if back else _to_apply(old, new))
        return resource
    resource_json = stack.resource_map._resource_json_map[logical_id]
    account_and_region = stack.account_id, stack.region_name
    return parse_and_update_resource(logical_id, resource_json, stack.resource_map, *account_and_region)


def _set_tags(stack: Stack, logical_id: str, resource: Any, old: _Definition, new: _Definition) -> bool:
    """Set the tags; return True if this kind of resource allows setting them separately."""
    new_tags = copy.deepcopy(new["Properties"].get("Tags", []))
    if isinstance(resource, TaggedEC2Resource):
        tag(stack, logical_id, resource, new, old)
    elif isinstance(resource, LogGroup):
        backend = logs_backends[stack.account_id][stack.region_name]
        backend.untag_resource(resource.arn, [t["Key"] for t in old["Properties"].get("Tags", [])])
        backend.tag_resource(resource.arn, {t["Key"]: t["Value"] for t in new_tags})
    elif isinstance(getattr(resource, "tags", None), list):
        resource.tags = new_tags
    else:
        return False
    return True


def tag(stack: Stack, logical_id: str, resource: Any, new: _Definition, old: _Definition | None = None) -> None:
    """Set the tags of an EC2 resource, including those of the stack and of CloudFormation itself."""
    new_tags = {t["Key"]: t["Value"] for t in new["Properties"].get("Tags", [])}
    for old_tag in (old or {}).get("Properties", {}).get("Tags", []):
        if old_tag["Key"] not in new_tags:
            ec2_backends[stack.account_id][stack.region_name].delete_tag_keys([resource.id], [old_tag["Key"]])
    cloudformation_tags = {"aws:cloudformation:logical-id": logical_id}
    resource.add_tags(stack.resource_map.tags | cloudformation_tags | new_tags)


def _without_tags(definition: _Definition) -> _Definition:
    return {key: value for key, value in definition["Properties"].items() if key != "Tags"}


def _to_apply(old: _Definition, new: _Definition) -> _Definition:
    """Return the properties without the sizes that CloudFormation leaves alone.

    With IgnoreUnmodifiedGroupSizeProperties, it applies only the sizes that differ between the two templates, whatever
    the group's current sizes are. A rollback ignores this setting (AWS CloudFormation Template Reference, "UpdatePolicy
    attribute").
    """
    policy = new.get("UpdatePolicy", {}).get("AutoScalingScheduledAction", {})
    if str(policy.get("IgnoreUnmodifiedGroupSizeProperties", "")).lower() != "true":
        return dict(new["Properties"])
    before = old["Properties"]
    return {name: value for name, value in new["Properties"].items() if name not in _SIZES or value != before.get(name)}


def _update_group(group: FakeAutoScalingGroup, old: _Definition, new: _Definition) -> None:
    """Resize the group and launch later instances from the new template version; existing ones stay unchanged."""
    group_checks.check_reservation(new)
    group.tags = copy.deepcopy(new.get("Tags", []))
    group.termination_policies = new.get("TerminationPolicies", ["Default"])
    lifecycle_hooks.update(group, *(properties.get("LifecycleHookSpecificationList", []) for properties in (old, new)))
    group.update(
        new.get("AvailabilityZones", []),
        _number(new.get("DesiredCapacity")),
        _number(new.get("MaxSize")),
        _number(new.get("MinSize")),
        new.get("LaunchConfigurationName", ""),
        new.get("LaunchTemplate", {}),
        ",".join(new.get("VPCZoneIdentifier", [])),
        int(new.get("HealthCheckGracePeriod", 0)),
        new.get("HealthCheckType", "EC2"),
    )


def _number(value: str | int | None) -> int | None:
    return None if value is None else int(value)


_IN_PLACE: dict[str, Callable[[Any, _Definition, _Definition], None]] = {
    _GROUP: _update_group,
    "AWS::EC2::PrefixList": prefix_lists.update,
    "AWS::EC2::SecurityGroup": security_groups.update,
    "AWS::EC2::SecurityGroupIngress": security_groups.update_rule,
    "AWS::EC2::SecurityGroupEgress": security_groups.update_rule,
    "AWS::IAM::Role": managed_policies.update,
    _FILE_SYSTEM: efs.update,
}
