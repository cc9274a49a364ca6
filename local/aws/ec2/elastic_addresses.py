"""Elastic IP addresses: they move between instances, take the place of automatic ones, and hold the internet gateway.

moto leaves a moved address also where it was, gives no instance its automatic address back, and keeps an address with
an instance that is gone.
"""

from typing import Any

from moto.ec2.exceptions import DependencyViolationError, EC2ClientError, ResourceAlreadyAssociatedError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_ip_addresses import ElasticAddress, ElasticAddressBackend
from moto.ec2.models.instances import Instance
from moto.ec2.models.internet_gateways import InternetGatewayBackend
from moto.ec2.responses.elastic_ip_addresses import ElasticIPAddresses

from local.aws.patching import around


def install() -> None:
    """Associate and disassociate addresses as EC2 does."""
    around(ElasticIPAddresses, "associate_address", _answer)
    around(ElasticAddressBackend, "associate_address", _associate)
    around(ElasticAddress, "has_cfn_attr", lambda original, name: name == "PublicIp" or original(name))
    around(ElasticAddress, "get_cfn_attribute", _attribute)
    around(InternetGatewayBackend, "detach_internet_gateway", _detach_gateway)
    around(Instance, "terminate", _terminate)


def _answer(original: Any, response: ElasticIPAddresses) -> Any:
    """Reassociation is automatic; only an explicit false forbids it."""
    response._get_params().setdefault("AllowReassociation", True)
    return original(response)


def _associate(
    original: Any,
    backend: EC2Backend,
    instance: Instance | None = None,
    eni: Any = None,
    address: str | None = None,
    allocation_id: str | None = None,
    reassociate: bool = False,
) -> ElasticAddress:
    found = backend.address_by_ip([address]) if address else backend.address_by_allocation([str(allocation_id)])
    wanted = found[0]
    if instance:
        _check_instance(backend, instance)
        eni = instance.nics[0]
    if wanted.eni is eni:
        return wanted
    if wanted.association_id and not reassociate:
        raise ResourceAlreadyAssociatedError(wanted.public_ip)
    for other in backend.addresses:
        # the wanted one where it was, and the one that the new place had
        if other.association_id and (other is wanted or other.eni is eni):
            backend.disassociate_address(address=other.public_ip)
    moved: ElasticAddress = original(backend, eni.instance, eni, wanted.public_ip, None, True)
    return moved


def _check_instance(backend: EC2Backend, instance: Instance) -> None:
    if instance.state not in ("running", "stopped"):
        message = f"The {instance.state} instance '{instance.id}' is not in a valid state for this operation."
        raise EC2ClientError("InvalidInstanceID", message)
    gateways = backend.internet_gateways.values()
    if not any(gateway.vpc and gateway.vpc.id == instance.vpc_id for gateway in gateways):
        message = f"Network {instance.vpc_id} is not attached to any internet gateway"
        raise EC2ClientError("Gateway.NotAttached", message)


def _attribute(original: Any, address: ElasticAddress, name: str) -> Any:
    return address.public_ip if name == "PublicIp" else original(address, name)


def _detach_gateway(original: Any, backend: EC2Backend, internet_gateway_id: str, vpc_id: str) -> None:
    automatic = any(i.vpc_id == vpc_id and i.public_ip_address for i in backend.all_instances())
    if automatic or any(address.eni and address.eni.vpc_id == vpc_id for address in backend.addresses):
        raise DependencyViolationError(
            f"Network {vpc_id} has some mapped public address(es). "
            "Please unmap those public address(es) before detaching the gateway."
        )
    original(backend, internet_gateway_id, vpc_id)


def _terminate(original: Any, instance: Instance) -> Any:
    """A terminated instance's address stays the account's, free for another."""
    previous = original(instance)
    for address in instance.ec2_backend.addresses:
        if any(address.eni is nic for nic in instance.nics.values()):
            instance.ec2_backend.disassociate_address(address=address.public_ip)
    return previous
