"""Associate Elastic IP addresses like EC2: they move, replace automatic addresses and depend on the internet gateway.

moto also leaves a moved address at its old place, never returns an instance's automatic address, keeps addresses on
terminated instances, and releases addresses in use.
"""

from typing import Any

from moto.ec2.exceptions import DependencyViolationError, EC2ClientError, ResourceAlreadyAssociatedError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_ip_addresses import ElasticAddress, ElasticAddressBackend
from moto.ec2.models.instances import Instance
from moto.ec2.models.internet_gateways import InternetGatewayBackend
from moto.ec2.responses.elastic_ip_addresses import ElasticIPAddresses

from local.control_plane.moto_patching import wrap


def install() -> None:
    """Patch moto: associate, disassociate and release addresses like EC2."""
    wrap(ElasticIPAddresses, "associate_address", _answer)
    wrap(ElasticAddressBackend, "associate_address", _associate)
    wrap(ElasticAddressBackend, "release_address", _release_address)
    wrap(ElasticAddress, "has_cfn_attr", lambda original, name: name == "PublicIp" or original(name))
    wrap(ElasticAddress, "get_cfn_attribute", _attribute)
    wrap(InternetGatewayBackend, "detach_internet_gateway", _detach_gateway)
    # Install it outside the wrapper of autoscaling/template_launches.
    wrap(Instance, "terminate", _terminate)


def _answer(original: Any, response: ElasticIPAddresses) -> Any:
    """Allow reassociation unless the request explicitly forbids it."""
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
    addresses = backend.address_by_ip([address]) if address else backend.address_by_allocation([str(allocation_id)])
    elastic_ip = addresses[0]
    if instance:
        _check_instance(backend, instance)
        eni = instance.nics[0]
    if elastic_ip.eni is eni:
        return elastic_ip
    if elastic_ip.association_id and not reassociate:
        raise ResourceAlreadyAssociatedError(elastic_ip.public_ip)
    for other in backend.addresses:
        # remove the address from its old place, and the old address from the new place
        if other.association_id and (other is elastic_ip or other.eni is eni):
            backend.disassociate_address(address=other.public_ip)
    moved: ElasticAddress = original(backend, eni.instance, eni, elastic_ip.public_ip, None, True)
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
    """Terminate an instance; its Elastic IP address stays with the account."""
    previous = original(instance)
    for address in instance.ec2_backend.addresses:
        if any(address.eni is nic for nic in instance.nics.values()):
            instance.ec2_backend.disassociate_address(address=address.public_ip)
    return previous


def _release_address(
    original: Any, backend: EC2Backend, address: str | None = None, allocation_id: str | None = None
) -> None:
    for elastic_ip in backend.addresses:
        held = elastic_ip.association_id and (
            elastic_ip.public_ip == address or elastic_ip.allocation_id == allocation_id
        )
        if held:
            raise EC2ClientError("InvalidIPAddress.InUse", f"Address {elastic_ip.public_ip} is in use.")
    original(backend, address=address, allocation_id=allocation_id)
