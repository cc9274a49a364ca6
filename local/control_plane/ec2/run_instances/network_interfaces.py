"""Give instances the network interfaces of their launch template, and refuse those that EC2 refuses, in its words.

moto makes the primary interface only, of the type ``interface`` and on card 0, whatever the template says.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_network_interfaces import Attachment, NetworkInterface
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance

from local.control_plane.ec2.run_instances.request import template_data
from local.control_plane.moto_patching import wrap
from local.network.vpc_network import mac_address

_EFA_ONLY = "efa-only"
_EFA = ("efa", _EFA_ONLY)
_CARD = "local_network_card"
"""Attribute of an interface with the index of its network card."""


def install() -> None:
    """Patch moto: complete the interfaces of launched instances, and describe the cards that they are on."""
    wrap(EC2Backend, "run_instances", _run_instances)
    wrap(NetworkInterface, "attachment", _attachment)


def check_interfaces(interfaces: Sequence[Mapping[str, Any]], *, instance_type: str) -> None:
    """Raise RunInstances' error for interfaces that are inconsistent or that the type does not support."""
    _check_efa_only([interface for interface in interfaces if interface.get("InterfaceType") == _EFA_ONLY])
    if len(interfaces) > 1 and any(map(_is_public, interfaces)):
        message = "The associatePublicIPAddress parameter cannot be specified"
        raise EC2ClientError(
            "InvalidParameterCombination", f"{message} when launching with multiple network interfaces"
        )
    _check_cards(interfaces, instance_type=instance_type)
    efa = Counter(_card(interface) for interface in interfaces if interface.get("InterfaceType") in _EFA)
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


def _check_cards(interfaces: Sequence[Mapping[str, Any]], *, instance_type: str) -> None:
    """Refuse a network card that the type lacks. EC2's words and code are unknown."""
    requested = set(map(_card, interfaces))
    if not requested - {0}:
        return
    cards = {card["NetworkCardIndex"] for card in INSTANCE_TYPES[instance_type]["NetworkInfo"]["NetworkCards"]}
    if unknown := sorted(requested - cards):
        message = (
            f"Network card index {unknown[0]} is not valid for {instance_type}, which has {len(cards)} network cards."
        )
        raise EC2ClientError("InvalidParameterValue", message)


def _check_efa_only(interfaces: Sequence[Mapping[str, Any]]) -> None:
    """Refuse EFA-only interfaces with a public address, and one as the primary interface, which must have an address.

    EC2's code and words for the second refusal are unknown; the words here are those of its User Guide.
    """
    if any(map(_is_public, interfaces)):
        raise EC2ClientError("InvalidParameterValue", "EFA-only network interfaces do not support IP addresses.")
    if any(_card(interface) == int(interface.get("DeviceIndex", 0)) == 0 for interface in interfaces):
        message = "An EFA-only network interface cannot be the primary network interface."
        raise EC2ClientError("InvalidParameterValue", message)


def _card(interface: Mapping[str, Any]) -> int:
    return int(interface.get("NetworkCardIndex", 0))


def _is_public(interface: Mapping[str, Any]) -> bool:
    """Return True if the interface asks for a public address; CloudFormation gives the answer as text."""
    return str(interface.get("AssociatePublicIpAddress", False)).lower() == "true"


def _run_instances(original: Any, backend: EC2Backend, *args: Any, **kwargs: Any) -> Any:
    data = template_data(backend, kwargs)
    launched = original(backend, *args, **kwargs)
    for instance in launched.instances:
        primary: NetworkInterface = instance.nics[0]
        # The node's own link has this address.
        primary.mac_address = mac_address(str(primary.private_ip_address))
        for specification in data.get("NetworkInterfaces", []):
            _add_interface(backend, instance, specification)
    return launched


def _add_interface(backend: EC2Backend, instance: Instance, specification: Mapping[str, Any]) -> None:
    """Make one interface of the template, or only set the type of the primary one, which moto has made."""
    card, device = _card(specification), int(specification.get("DeviceIndex", 0))
    kind = specification.get("InterfaceType", "interface")
    if card == device == 0:
        instance.nics[0].interface_type = kind
        return
    subnet = instance.nics[0].subnet
    address = None if kind == _EFA_ONLY else subnet.get_available_subnet_ip(instance=instance)
    interface: Any = backend.create_network_interface(
        subnet, address or "", group_ids=[*specification.get("Groups", [])], delete_on_termination=True
    )
    if address is None:
        # moto has given it a random one.
        interface.private_ip_address, interface.private_ip_addresses, interface.private_dns_name = None, [], None
    interface.interface_type = kind
    setattr(interface, _CARD, card)
    # moto stores one interface per device number, but cards may have interfaces of the same number.
    instance.attach_eni(interface, 100 * card + device)
    interface.device_index = device


def _attachment(original: Any, interface: NetworkInterface) -> Attachment | None:
    attachment: Attachment | None = original(interface)
    if attachment is not None:
        attachment.network_card_index = getattr(interface, _CARD, 0)
    return attachment
