"""Assign addresses in subnets like a VPC, and associate subnets with their route tables."""

import itertools
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, elastic_ip_addresses, elastic_network_interfaces
from moto.ec2.models.subnets import Subnet

from local.control_plane.moto_patching import wrap

_PUBLIC = (f"54.214.{high}.{low}" for high, low in itertools.product(range(255), range(1, 255)))
"""Every public address once; moto's random ones may repeat or be loopback addresses."""


def install() -> None:
    """Patch moto: assign addresses and associate route tables like a VPC."""
    wrap(Subnet, "create_from_cloudformation_json", _create_subnet)
    wrap(Subnet, "get_available_subnet_ip", _private_address)
    wrap(elastic_ip_addresses, "random_ip", lambda _original: next(_PUBLIC))
    wrap(elastic_network_interfaces, "random_public_ip", lambda _original: next(_PUBLIC))
    wrap(EC2Backend, "create_subnet_association", _associate_route_table)


def _create_subnet(
    original: Any, name: str, definition: dict[str, Any], *account_and_region: str, **kwargs: Any
) -> Subnet:
    subnet: Subnet = original(name, definition, *account_and_region, **kwargs)
    public = definition["Properties"].get("MapPublicIpOnLaunch", False)
    subnet.map_public_ip_on_launch = str(public).lower() == "true"
    return subnet


def _private_address(original: Any, subnet: Subnet, instance: Any) -> str:
    """Prefer an unused address, so that a replacement is not mistaken for the instance that it replaces."""
    freed, subnet._unused_ips = subnet._unused_ips, set()
    try:
        return str(original(subnet, instance))
    except StopIteration:
        if not freed:
            message = "The specified subnet does not have enough free addresses to satisfy the request."
            raise EC2ClientError("InsufficientFreeAddressesInSubnet", message) from None
        address = freed.pop()
        subnet._subnet_ips[address] = instance
        return address
    finally:
        subnet._unused_ips = freed


def _associate_route_table(original: Any, backend: EC2Backend, route_table_id: str, subnet_id: str) -> Any:
    association = original(backend, route_table_id, subnet_id)
    backend.associate_route_table(route_table_id, subnet_id=subnet_id)
    return association
