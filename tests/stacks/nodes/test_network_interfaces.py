"""Check the interfaces of every type against the rules of EC2's user guide and the cards that EC2 describes."""

from collections import Counter

import pytest

from stacks.catalog.gpu_types import GPU_TYPES
from stacks.nodes.network_interfaces import network_interfaces

WITH_EFA = [known for known in GPU_TYPES.values() if known.efa_interfaces]


def layout(name: str) -> list[tuple[int, int, str]]:
    found = network_interfaces(GPU_TYPES[name], ["sg-1"])
    assert all(interface["Groups"] == ["sg-1"] and interface["DeleteOnTermination"] for interface in found)
    return [
        (interface["NetworkCardIndex"], interface["DeviceIndex"], interface["InterfaceType"]) for interface in found
    ]


@pytest.mark.parametrize("name", [known.name for known in WITH_EFA])
def test_every_card_with_efa_has_one_and_the_primary_has_an_address(name: str) -> None:
    known, found = GPU_TYPES[name], layout(name)
    efa = Counter(card for card, _, kind in found if kind != "interface")
    assert efa == Counter(range(known.first_efa_card, known.network_cards))
    assert efa.total() == known.efa_interfaces
    assert len({(card, device) for card, device, _ in found}) == len(found)
    assert found[0][:2] == (0, 0)
    # An efa-only interface has no address and cannot be the primary one.
    assert [kind for *_, kind in found if kind != "efa-only"] == ["efa" if known.network_cards == 1 else "interface"]


def test_interface_layouts_match_the_ec2_user_guide() -> None:
    assert layout("g5.8xlarge") == [(0, 0, "efa")]
    assert layout("g7.48xlarge") == [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")]
    assert layout("p4d.24xlarge") == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]
    # Card 0 has no EFA.
    assert layout("p6-b300.48xlarge") == [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]


@pytest.mark.parametrize(
    ("name", "cards"), [("p5.48xlarge", 32), ("p5e.48xlarge", 32), ("p5en.48xlarge", 16), ("p6-b200.48xlarge", 8)]
)
def test_each_further_card_has_an_efa_only_interface(name: str, cards: int) -> None:
    others = [(card, 0, "efa-only") for card in range(1, cards)]
    assert layout(name) == [(0, 0, "interface"), (0, 1, "efa-only"), *others]


def test_interfaces_leave_the_public_address_to_the_subnet() -> None:
    # EC2 refuses the parameter with several interfaces; with one, the subnet decides.
    keys = {key for known in WITH_EFA for interface in network_interfaces(known, []) for key in interface}
    assert "AssociatePublicIpAddress" not in keys
    assert "SubnetId" not in keys
