"""Refuse launches that AWS refuses and moto accepts."""

from collections.abc import Mapping, Sequence
from typing import Any

from moto import settings
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPES

from local.control_plane.ec2.run_instances.network_interfaces import check_interfaces
from local.control_plane.ec2.run_instances.request import requested_type, template_data
from local.control_plane.moto_patching import wrap


def install() -> None:
    """Patch moto: refuse to launch with an unknown key pair, image or instance type."""
    settings.ENABLE_AMI_VALIDATION = True
    wrap(EC2Backend, "run_instances", _run_instances)


def check_launch(
    backend: EC2Backend,
    *,
    key_name: str | None,
    instance_type: str | None,
    interfaces: Sequence[Mapping[str, Any]] = (),
    security_groups: Sequence[str] = (),
) -> None:
    """Raise RunInstances' error if the key pair or the type does not exist, or the type lacks the interfaces.

    Interfaces have their own security groups, so that the instance may have none beside them.
    """
    if key_name and key_name not in backend.key_pairs:
        raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{key_name}' does not exist")
    if instance_type and instance_type not in INSTANCE_TYPES:
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    if interfaces and security_groups:
        message = "Network interfaces and an instance-level security groups may not be specified on the same request"
        raise EC2ClientError("InvalidParameterCombination", message)
    if instance_type:
        check_interfaces(interfaces, instance_type=instance_type)


def _run_instances(original: Any, backend: EC2Backend, image_id: str, *args: Any, **kwargs: Any) -> Any:
    data, interfaces = template_data(backend, kwargs), kwargs.get("nics")
    check_launch(
        backend,
        key_name=kwargs.get("key_name") or data.get("KeyName"),
        instance_type=requested_type(kwargs, data),
        interfaces=interfaces or data.get("NetworkInterfaces", []),
        # A group's launch passes the security groups of the template's interface as those of the instance.
        security_groups=kwargs.get("security_group_ids", []) if interfaces else data.get("SecurityGroupIds", []),
    )
    return original(backend, image_id, *args, **kwargs)
