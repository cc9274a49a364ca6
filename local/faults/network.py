"""Make routers drop packets.

The rules are in the routers, in a separate table that precedes the firewall's: what the data plane loads does not
affect them, established connections are cut too, and healing only deletes the table.
"""

from collections.abc import Sequence
from typing import Final

from local.errors import LocalError
from local.network.addresses import API_ADDRESS, API_PORT, METADATA_ADDRESS
from local.network.vpc_network import routers, run_nft

TABLE: Final = "inet faults"
CUT, HUNG, PAIRS, NO_METADATA, NO_API = "cut", "hung", "pairs", "no_metadata", "no_api"
API_SILENT, API_REFUSED = "api_silent", "api_refused"
_SETS: Final = {
    CUT: "ifname",
    HUNG: "ifname",
    PAIRS: "ifname . ifname",
    NO_METADATA: "ifname",
    NO_API: "ifname",
    API_SILENT: "inet_service",
    API_REFUSED: "inet_service",
}
"""Sets of affected links on a VPC's router, and of ports at which AWS's API is out for all nodes."""
_API_TRAFFIC: Final = f"ip daddr {API_ADDRESS} tcp dport"
_CHAINS: Final = {
    "forward": (
        *(f"{way} @{name} drop" for name in (CUT, HUNG) for way in ("iifname", "oifname")),
        f"iifname . oifname @{PAIRS} drop",
        f"iifname @{NO_API} {_API_TRAFFIC} {API_PORT} drop",
        f"{_API_TRAFFIC} @{API_SILENT} drop",
        f"{_API_TRAFFIC} @{API_REFUSED} reject with tcp reset",
    ),
    # The metadata service and the gateway's address are on the router itself.
    "input": (
        *(f"iifname @{name} drop" for name in (CUT, HUNG)),
        f"iifname @{NO_METADATA} ip daddr {METADATA_ADDRESS} drop",
    ),
    "output": tuple(f"oifname @{name} drop" for name in (CUT, HUNG)),
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


def add_elements(name: str, *elements: str) -> None:
    """Add links, pairs of links or ports to a set."""
    _load([*_layout(), *(f"add element {TABLE} {name} {{ {element} }}" for element in elements)])


def remove_elements(name: str, *elements: str) -> None:
    """Remove elements from a set, if it has them."""
    # Add them first, because nft fails to delete missing elements.
    both = [f"{verb} element {TABLE} {name} {{ {element} }}" for element in elements for verb in ("add", "delete")]
    _load([*_layout(), *both])


def heal_all() -> None:
    """Stop dropping packets."""
    _load([f"add table {TABLE}", f"delete table {TABLE}"])


def link(name: str) -> str:
    """Format a link as an element."""
    return f'"{name}"'


def pair_elements(one: str, other: str) -> tuple[str, str]:
    """Format two links as elements of PAIRS."""
    return f'"{one}" . "{other}"', f'"{other}" . "{one}"'
