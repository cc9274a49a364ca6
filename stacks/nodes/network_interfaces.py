"""Lay out the network interfaces of a node that uses the Elastic Fabric Adapter (EFA).

For the rules, see "Maximize network bandwidth on Amazon EC2 instances with multiple network cards" (Amazon EC2 User
Guide). The Auto Scaling group defines the subnet. The subnet decides whether a node gets a public address, which AWS
gives only to a node with a single interface, so the interfaces do not mention it.
"""

from collections.abc import Sequence
from typing import Any

from stacks.catalog.gpu_types import InstanceType


def network_interfaces(instance: InstanceType, security_groups: Sequence[str]) -> list[dict[str, Any]]:
    """Return the interfaces of a launch template, with EFA on every network card that supports it."""
    if instance.network_cards == 1:
        return [_interface(0, 0, "efa", security_groups)]
    primary = _interface(0, 0, "interface", security_groups)
    # They use no address of the subnet; on card 0, the primary interface has device 0.
    cards = range(instance.first_efa_card, instance.network_cards)
    return [primary, *(_interface(card, 0 if card else 1, "efa-only", security_groups) for card in cards)]


def _interface(card: int, device: int, kind: str, security_groups: Sequence[str]) -> dict[str, Any]:
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": device,
        "InterfaceType": kind,
        "Groups": list(security_groups),
        "DeleteOnTermination": True,
    }
