"""Launch the instances of Auto Scaling groups according to their launch template.

moto uses the template's default version instead of the group's, adds a second root volume, and ignores the instance
profile, the metadata options and the network interface's settings. It also accepts any template for a group, while Auto
Scaling checks it.
"""

from collections import Counter
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import ASG_NAME_TAG, FakeAutoScalingGroup, InstanceState
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateVersion
from moto.ec2.utils import convert_tag_spec

from local.control_plane.ec2.run_instances.checks import check_launch
from local.control_plane.ec2.run_instances.request import DEFAULT_TYPE
from local.control_plane.limits.capacity import SHORTAGES, UNSUPPORTED, check_offering
from local.control_plane.moto_patching import wrap

_Data = dict[str, Any]


def install() -> None:
    """Patch moto: launch the instances of groups with the functions below."""
    wrap(FakeAutoScalingGroup, "_set_launch_configuration", _set_launch_configuration)
    # activities wraps the result of this, to record the launches.
    wrap(FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch)
    # elastic_ips wraps the result of this, to disassociate the address.
    wrap(Instance, "terminate", _terminate)
    for name in ("private_ip_address", "public_ip_address"):
        wrap(Instance, name, _address)
    wrap(Instance, "network_interfaces", _network_interfaces)
    wrap(InstanceState, "launch_template", _launched_from)


def _set_launch_configuration(
    original: Any, group: FakeAutoScalingGroup, configuration: str, template: _Data, *others: Any, **kwargs: Any
) -> None:
    """Refuse a template that cannot be launched, even at size 0; do not check the group's current template again."""
    if template:
        version = group.ec2_backend._get_template_from_args(template)
        current = group.ec2_launch_template
        if current is None or current.get_version(group.launch_template_version) is not version:
            _verify(group.ec2_backend, version, group.availability_zones)
    original(group, configuration, template, *others, **kwargs)


def _verify(backend: EC2Backend, version: LaunchTemplateVersion, zones: list[str]) -> None:
    key_name, instance_type = (version.data.get(key) for key in ("KeyName", "InstanceType"))
    try:
        if version.image_id:
            backend.describe_images(ami_ids=[version.image_id])
        check_launch(
            backend,
            key_name=key_name,
            instance_type=instance_type,
            interfaces=version.data.get("NetworkInterfaces", []),
            security_groups=version.data.get("SecurityGroupIds", []),
        )
        if instance_type:
            check_offering(backend.region_name, instance_type, zones)
    except EC2ClientError as error:
        raise ValidationError(f"You must use a valid fully-formed launch template. {error.message}") from error


def _launch(original: Any, group: FakeAutoScalingGroup, count: int, propagated_tags: dict[str, str]) -> None:
    template = group.ec2_launch_template
    if template is None:
        original(group, count, propagated_tags)
        return
    for _ in range(count):
        _launch_anywhere(group, template)


def _launch_anywhere(group: FakeAutoScalingGroup, template: LaunchTemplate) -> None:
    """Launch an instance where the group has the fewest; if EC2 has no capacity there, try its other subnets."""
    count = Counter(instance_state.instance.subnet_id for instance_state in group.instance_states)
    subnets = sorted((group.vpc_zone_identifier or "").split(","), key=lambda subnet: count[subnet])
    shortage = None
    for subnet in subnets:
        try:
            launch_instance(group, template, subnet_id=subnet)
        except EC2ClientError as error:
            if error.code not in {*SHORTAGES, UNSUPPORTED}:
                raise
            shortage = shortage or error
        else:
            return
    if shortage:
        raise shortage


def launch_instance(group: FakeAutoScalingGroup, template: LaunchTemplate, *, subnet_id: str) -> Instance:
    """Launch one instance from the group's template. Raises EC2ClientError if EC2 refuses."""
    version = template.get_version(group.launch_template_version)
    tags = convert_tag_spec(version.data.get("TagSpecifications", []))
    instance_tags = tags.get("instance", {}) | group.get_propagated_tags() | {ASG_NAME_TAG: group.name}
    instance = _run(group, version, {"instance": instance_tags, "volume": tags.get("volume", {})}, subnet_id)
    protected = group.new_instances_protected_from_scale_in
    group.instance_states.append(InstanceState(instance, protected_from_scale_in=protected, autoscaling_group=group))
    return instance


def _run(
    group: FakeAutoScalingGroup, version: LaunchTemplateVersion, tags: dict[str, dict[str, str]], subnet_id: str
) -> Instance:
    data = version.data
    interface = _primary_interface(data)
    subnet = interface.get("SubnetId") or subnet_id
    volumes = [_with_defaults(mapping) for mapping in data.get("BlockDeviceMappings", [])]
    arguments: _Data = {
        "instance_type": data.get("InstanceType", DEFAULT_TYPE),
        "is_instance_type_default": False,
        "key_name": data.get("KeyName"),
        "security_group_ids": interface.get("Groups") or data.get("SecurityGroupIds", []),
        "subnet_id": subnet or None,
        "associate_public_ip": _gets_public_address(data),
        "launch_template": {"LaunchTemplateId": version.template.id, "Version": str(version.number)},
        "metadata_options": data.get("MetadataOptions", {}),
        "tags": tags,
    }
    if market := data.get("InstanceMarketOptions"):
        arguments["instance_market_options"] = market
    if volumes:
        arguments["block_device_mappings"] = volumes
    reservation = group.ec2_backend.run_instances(version.image_id, 1, version.user_data, [], **arguments)
    instance: Instance = reservation.instances[0]
    for nic in instance.nics.values():
        nic.delete_on_termination = True
    if profile := data.get("IamInstanceProfile"):
        group.ec2_backend.associate_iam_instance_profile(instance.id, profile.get("Name"), profile.get("Arn"))
    return instance


def _primary_interface(data: _Data) -> _Data:
    return next(filter(_is_primary, data.get("NetworkInterfaces", [])), {})


def _is_primary(interface: _Data) -> bool:
    """Return True for device 0 of network card 0: the interfaces of other cards may have device 0 too."""
    return not int(interface.get("NetworkCardIndex", 0)) and not int(interface.get("DeviceIndex", 0))


def _gets_public_address(data: _Data) -> bool | None:
    """Return True if the instance gets a public address; None if the subnet decides."""
    if len(data.get("NetworkInterfaces", [])) > 1:
        return False  # "Assign a public IPv4 address at launch" (Amazon EC2 User Guide)
    return _boolean(_primary_interface(data).get("AssociatePublicIpAddress"))


def _with_defaults(mapping: _Data) -> _Data:
    """Delete a root volume with its instance unless the template specifies otherwise."""
    return mapping | {"Ebs": {"DeleteOnTermination": True} | mapping.get("Ebs", {})}


def _boolean(value: Any) -> bool | None:
    return None if value is None else str(value).lower() == "true"


def _terminate(original: Any, instance: Instance) -> Any:
    """Terminate only once: on a repeated call moto fails to detach the volumes, while AWS repeats its answer."""
    if instance._state.name == "terminated":
        return instance._state
    return original(instance)


def _address(original: Any, instance: Instance) -> Any:
    """Return None once the instance is terminated, because AWS has taken the address back."""
    return None if instance._state.name == "terminated" else original(instance)


def _network_interfaces(original: Any, instance: Instance) -> Any:
    return [] if instance._state.name == "terminated" else original(instance)


def _launched_from(original: Any, instance_state: InstanceState) -> dict[str, Any] | None:
    """Return the version from which the instance was launched instead of the template's default."""
    template: dict[str, Any] | None = original(instance_state)
    versions = [t["value"] for t in instance_state.instance.get_tags() if t["key"] == "aws:ec2launchtemplate:version"]
    return template | {"Version": versions[0]} if template and versions else template
