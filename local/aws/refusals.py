"""What AWS refuses and moto lets pass."""

from typing import Any

from moto import settings
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend

from local.aws.patching import around


def install() -> None:
    """Refuse to release an address in use, and to launch with an unknown key pair or image."""
    settings.ENABLE_AMI_VALIDATION = True
    around(ElasticAddressBackend, "release_address", _release_address)
    around(EC2Backend, "run_instances", _run_instances)


def check_key(backend: EC2Backend, name: str | None) -> None:
    """Raise what RunInstances answers when there is no such key pair."""
    if name and name not in backend.key_pairs:
        raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")


def _run_instances(original: Any, backend: EC2Backend, image_id: str, *arguments: Any, **named: Any) -> Any:
    check_key(backend, named.get("key_name"))
    return original(backend, image_id, *arguments, **named)


def _release_address(
    original: Any, backend: EC2Backend, address: str | None = None, allocation_id: str | None = None
) -> None:
    for found in backend.addresses:
        held = found.association_id and (found.public_ip == address or found.allocation_id == allocation_id)
        if held:
            raise EC2ClientError("InvalidIPAddress.InUse", f"Address {found.public_ip} is in use.")
    original(backend, address=address, allocation_id=allocation_id)
