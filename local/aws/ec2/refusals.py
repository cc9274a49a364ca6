"""What AWS refuses and moto lets pass."""

from typing import Any

from moto import settings
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.instance_types import INSTANCE_TYPES

from local.aws.patching import around


def install() -> None:
    """Refuse to release an address in use, and to launch with an unknown key pair, image or instance type."""
    settings.ENABLE_AMI_VALIDATION = True
    around(ElasticAddressBackend, "release_address", _release_address)
    around(EC2Backend, "run_instances", _run_instances)


def check_launch(backend: EC2Backend, *, key_name: str | None, instance_type: str | None) -> None:
    """Raise what RunInstances answers when there is no such key pair or instance type."""
    if key_name and key_name not in backend.key_pairs:
        raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{key_name}' does not exist")
    if instance_type and instance_type not in INSTANCE_TYPES:
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")


def _run_instances(original: Any, backend: EC2Backend, image_id: str, *arguments: Any, **named: Any) -> Any:
    template: Any = named.get("launch_template")
    data = backend._get_template_from_args(template).data if template else {}
    instance_type = data.get("InstanceType") if named.get("is_instance_type_default") else named.get("instance_type")
    check_launch(backend, key_name=named.get("key_name") or data.get("KeyName"), instance_type=instance_type)
    return original(backend, image_id, *arguments, **named)


def _release_address(
    original: Any, backend: EC2Backend, address: str | None = None, allocation_id: str | None = None
) -> None:
    for found in backend.addresses:
        held = found.association_id and (found.public_ip == address or found.allocation_id == allocation_id)
        if held:
            raise EC2ClientError("InvalidIPAddress.InUse", f"Address {found.public_ip} is in use.")
    original(backend, address=address, allocation_id=allocation_id)
