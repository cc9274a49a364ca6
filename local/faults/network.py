"""Make routers drop packets.

The rules are in the routers, in a separate table that precedes the firewall's: the rules that the data plane loads do
not affect them, established connections are cut too, and undoing all faults only deletes the table.
"""

from collections.abc import Sequence
from typing import Final

from local.errors import LocalError
from local.network.addresses import API_ADDRESS, API_PORT, METADATA_ADDRESS
from local.network.vpc_network import routers, run_nft

TABLE: Final = "inet faults"
PARTITIONED: Final = "partitioned"
"""Links of nodes that are cut off from everything."""
PARTITIONED_PAIRS: Final = "partitioned_pairs"
"""Pairs of links that are cut off from each other."""
FROZEN: Final = "frozen"
"""Links of nodes whose host hangs."""
NO_METADATA: Final = "no_metadata"
"""Links of nodes that the metadata service does not answer."""
NO_API: Final = "no_api"
"""Links of nodes that do not reach AWS's API."""
API_SILENT: Final = "api_silent"
"""Ports at which AWS's API answers no node."""
API_REFUSED: Final = "api_refused"
"""Ports at which AWS's API refuses the connections of all nodes."""
_SETS: Final = {
    PARTITIONED: "ifname",
    PARTITIONED_PAIRS: "ifname . ifname",
    FROZEN: "ifname",
    NO_METADATA: "ifname",
    NO_API: "ifname",
    API_SILENT: "inet_service",
    API_REFUSED: "inet_service",
}
"""Type of each set's elements: links or pairs of links on a VPC's router, or TCP ports."""
_API_TRAFFIC: Final = f"ip daddr {API_ADDRESS} tcp dport"
_CHAINS: Final = {
    "forward": (
        *(f"{way} @{name} drop" for name in (PARTITIONED, FROZEN) for way in ("iifname", "oifname")),
        f"iifname . oifname @{PARTITIONED_PAIRS} drop",
        f"iifname @{NO_API} {_API_TRAFFIC} {API_PORT} drop",
        f"{_API_TRAFFIC} @{API_SILENT} drop",
        f"{_API_TRAFFIC} @{API_REFUSED} reject with tcp reset",
    ),
    # The metadata service and the gateway's address are on the router itself.
    "input": (
        *(f"iifname @{name} drop" for name in (PARTITIONED, FROZEN)),
        f"iifname @{NO_METADATA} ip daddr {METADATA_ADDRESS} drop",
    ),
    "output": tuple(f"oifname @{name} drop" for name in (PARTITIONED, FROZEN)),
}
BEFORE_THE_FIREWALL: Final = -10


def _layout() -> list[str]:
    """Return the sets and rules; reloading them changes nothing and keeps the sets' elements."""
    lines = [f"add table {TABLE}", *(f"add set {TABLE} {name} {{ type {kind}; }}" for name, kind in _SETS.items())]
    for chain, rules in _CHAINS.items():
        hook = f"type filter hook {chain} priority {BEFORE_THE_FIREWALL};"
        lines += [f"add chain {TABLE} {chain} {{ {hook} }}", f"flush chain {TABLE} {chain}"]
        lines += [f"add rule {TABLE} {chain} {rule}" for rule in rules]
    return lines


def _load(lines: Sequence[str]) -> None:
    """Load all lines or none into every router; link names are unique, so that other routers ignore them.

    The internet's router also gets the rules, for VPCs that are created later.
    """
    for router in routers():
        try:
            run_nft(router, "\n".join(lines) + "\n")
        except LocalError:
            if router in routers():  # otherwise its VPC has just lost its last node
                raise


def interrupt(name: str, *elements: str) -> None:
    """Drop or refuse the packets of links, pairs of links or ports by adding them to a set."""
    _load([*_layout(), *(f"add element {TABLE} {name} {{ {element} }}" for element in elements)])


def restore(name: str, *elements: str) -> None:
    """Remove links, pairs of links or ports from a set, if it has them."""
    # Add them first, because nft fails to delete missing elements.
    both = [f"{verb} element {TABLE} {name} {{ {element} }}" for element in elements for verb in ("add", "delete")]
    _load([*_layout(), *both])


def restore_all() -> None:
    """Delete all sets and rules, so that no packet is dropped or refused any more."""
    _load([f"add table {TABLE}", f"delete table {TABLE}"])


def link_element(name: str) -> str:
    """Format a link as an element."""
    return f'"{name}"'


def pair_elements(one: str, other: str) -> tuple[str, str]:
    """Format two links as elements of PARTITIONED_PAIRS."""
    return f'"{one}" . "{other}"', f'"{other}" . "{one}"'
