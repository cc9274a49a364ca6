"""Refuse network interfaces that EC2 refuses to launch, in its words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES

_EFA_ONLY = "efa-only"
_EFA = ("efa", _EFA_ONLY)


def check_interfaces(interfaces: Sequence[Mapping[str, Any]], *, instance_type: str) -> None:
    """Raise RunInstances' error for interfaces that are inconsistent or that the type does not support."""
    _check_efa_only([each for each in interfaces if each.get("InterfaceType") == _EFA_ONLY])
    if len(interfaces) > 1 and any(map(_is_public, interfaces)):
        word = "The associatePublicIPAddress parameter cannot be specified"
        raise EC2ClientError("InvalidParameterCombination", f"{word} when launching with multiple network interfaces")
    efa = Counter(int(each.get("NetworkCardIndex", 0)) for each in interfaces if each.get("InterfaceType") in _EFA)
    if not efa:
        return
    network: Mapping[str, Any] = INSTANCE_TYPES[instance_type]["NetworkInfo"]
    if not network.get("EfaSupported"):
        raise EC2ClientError("UnsupportedOperation", f"EFA interfaces are not supported on {instance_type}")
    limits = {card["NetworkCardIndex"]: int("efa" in card["InterfaceTypes"]) for card in network["NetworkCards"]}
    over = [(card, count, limits.get(card, 0)) for card, count in sorted(efa.items()) if count > limits.get(card, 0)]
    if over:
        cards = ", ".join(f"Network Card {card} (requested: {count}, limit: {limit})" for card, count, limit in over)
        count = f"EFA interface count {sum(efa.values())} exceeds allowed limit for {instance_type}"
        raise EC2ClientError("AttachmentLimitExceeded", f"{count}. {cards}.")


def _check_efa_only(interfaces: Sequence[Mapping[str, Any]]) -> None:
    """Refuse addresses for these interfaces, of which the primary one needs some.

    EC2's words and code for the second case are unknown; the words are those of its User Guide.
    """
    if any(map(_is_public, interfaces)):
        raise EC2ClientError("InvalidParameterValue", "EFA-only network interfaces do not support IP addresses.")
    if any(int(each.get("NetworkCardIndex", 0)) == int(each.get("DeviceIndex", 0)) == 0 for each in interfaces):
        word = "An EFA-only network interface cannot be the primary network interface."
        raise EC2ClientError("InvalidParameterValue", word)


def _is_public(interface: Mapping[str, Any]) -> bool:
    """Return True if the interface asks for a public address; CloudFormation gives the answer as text."""
    return str(interface.get("AssociatePublicIpAddress", False)).lower() == "true"
