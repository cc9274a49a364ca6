"""Faults of the network: packets that a router drops.

They are rules of the routers themselves, in a table of their own that comes before the firewall's: what the data plane
loads does not touch them, connections that are established already are cut as well, and healing is to delete the table.
"""

from collections.abc import Sequence
from typing import Final

from local.errors import LocalError
from local.network.addresses import API_ADDRESS, API_PORT, METADATA_ADDRESS
from local.network.vpc_network import load_rules, routers

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
"""Who is struck: links on a VPC's router, and ports of AWS's API that are out for all nodes."""
_TO_API: Final = f"ip daddr {API_ADDRESS} tcp dport"
_CHAINS: Final = {
    "forward": (
        *(f"{way} @{name} drop" for name in (CUT, HUNG) for way in ("iifname", "oifname")),
        f"iifname . oifname @{PAIRS} drop",
        f"iifname @{NO_API} {_TO_API} {API_PORT} drop",
        f"{_TO_API} @{API_SILENT} drop",
        f"{_TO_API} @{API_REFUSED} reject with tcp reset",
    ),
    # The metadata service and the gateway's address are the router's own.
    "input": (
        *(f"iifname @{name} drop" for name in (CUT, HUNG)),
        f"iifname @{NO_METADATA} ip daddr {METADATA_ADDRESS} drop",
    ),
    "output": tuple(f"oifname @{name} drop" for name in (CUT, HUNG)),
}
BEFORE_THE_FIREWALL: Final = -10


def _layout() -> list[str]:
    """Sets and rules; loading them again changes nothing and keeps what is in the sets."""
    lines = [f"add table {TABLE}", *(f"add set {TABLE} {name} {{ type {kind}; }}" for name, kind in _SETS.items())]
    for chain, rules in _CHAINS.items():
        hook = f"type filter hook {chain} priority {BEFORE_THE_FIREWALL};"
        lines += [f"add chain {TABLE} {chain} {{ {hook} }}", f"flush chain {TABLE} {chain}"]
        lines += [f"add rule {TABLE} {chain} {rule}" for rule in rules]
    return lines


def _load(lines: Sequence[str]) -> None:
    """All of the lines or none, in every router: links have names of their own, and a VPC that comes later is behind
    the internet.
    """
    for router in routers():
        try:
            load_rules(router, "\n".join(lines) + "\n")
        except LocalError:
            if router in routers():  # otherwise its VPC has lost its last node meanwhile
                raise


def strike(name: str, *elements: str) -> None:
    """Put links, pairs of links or ports into a set."""
    _load([*_layout(), *(f"add element {TABLE} {name} {{ {element} }}" for element in elements)])


def spare(name: str, *elements: str) -> None:
    """Take them out again, if they are in it."""
    # Added first, as nft fails on what is not there.
    both = [f"{verb} element {TABLE} {name} {{ {element} }}" for element in elements for verb in ("add", "delete")]
    _load([*_layout(), *both])


def heal_all() -> None:
    """Drop nothing any more."""
    _load([f"add table {TABLE}", f"delete table {TABLE}"])


def link(name: str) -> str:
    """A link as an element."""
    return f'"{name}"'


def both_ways(one: str, other: str) -> tuple[str, str]:
    """Two links as elements of PAIRS."""
    return f'"{one}" . "{other}"', f'"{other}" . "{one}"'
