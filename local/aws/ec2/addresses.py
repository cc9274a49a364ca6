"""Addresses: public subnets hand out public ones, and all of them are usable ones."""

import itertools
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import elastic_ip_addresses, elastic_network_interfaces
from moto.ec2.models.subnets import Subnet

from local.aws.patching import around

_PUBLIC = (f"54.214.{high}.{low}" for high, low in itertools.product(range(255), range(1, 255)))
"""Every public address once; moto's random ones may be of the loopback network, or the same twice."""


def install() -> None:
    """Hand out addresses as a VPC does."""
    around(Subnet, "create_from_cloudformation_json", _create_subnet)
    around(Subnet, "get_available_subnet_ip", _private_address)
    around(elastic_ip_addresses, "random_ip", lambda _original: next(_PUBLIC))
    around(elastic_network_interfaces, "random_public_ip", lambda _original: next(_PUBLIC))


def _create_subnet(original: Any, name: str, definition: dict[str, Any], *place: str, **named: Any) -> Subnet:
    subnet: Subnet = original(name, definition, *place, **named)
    public = definition["Properties"].get("MapPublicIpOnLaunch", False)
    subnet.map_public_ip_on_launch = str(public).lower() == "true"
    return subnet


def _private_address(original: Any, subnet: Subnet, instance: Any) -> str:
    """A fresh address while there is one, so that a replacement is not taken for what it replaces."""
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
