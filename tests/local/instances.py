"""Create an instance of the inventory for tests."""

from ipaddress import IPv4Interface

from local.network.vpc_network import mac_address
from local.node.inventory import Instance, Interface


def interface(number: int, *, card: int = 0, kind: str = "interface") -> Interface:
    """Return an interface, which has an address if it is the primary one."""
    return Interface(
        interface_id=f"eni-{card:017x}",
        mac=mac_address(f"10.0.{card}.{number}"),
        network_card_index=card,
        device_index=0,
        interface_type=kind,
        address=None if card else f"10.0.0.{number}",
        group_ids=("sg-1",),
    )


def instance(number: int, *, groups: tuple[str, ...], public: str | None, internet: str | None) -> Instance:
    return Instance(
        instance_id=f"i-{number:017x}",
        address=IPv4Interface(f"10.0.0.{number}/24"),
        public_address=public,
        internet_address=internet,
        group_ids=groups,
        instance_type="c5.large",
        image_id="ami-1",
        subnet_id="subnet-1",
        vpc_id="vpc-1",
        zone="us-east-1a",
        key_name=None,
        profile_arn=None,
        interfaces=(interface(number),),
    )
