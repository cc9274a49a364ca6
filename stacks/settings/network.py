"""Define the settings of a cluster's network: its addresses and its availability zone."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stacks.settings.capacity import CapacitySettings
from stacks.settings.values import SettingsError, ipv4_block, require, shown

TAKEN_BLOCKS: Final = {
    "0.0.0.0/8": "EC2 refuses it",
    "127.0.0.0/8": "EC2 refuses it",
    "169.254.0.0/16": "EC2 refuses it",
    "172.17.0.0/16": "Docker's bridge has it on every node",
    "224.0.0.0/4": "EC2 refuses it",
}
"""Blocks that no cluster network may overlap (Amazon VPC User Guide, "IPv4 VPC CIDR blocks")."""
_ZONE: Final = re.compile(r"[a-z]{2}(?:-[a-z0-9]{1,12}){1,6}-[0-9]{1,2}[a-z]")
_RESERVED_ADDRESSES: Final = 5
"""Addresses that AWS keeps in each subnet."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(CapacitySettings):
    """The network, which has to have an address for every node."""

    availability_zone: str | None = None
    """Zone of all nodes; left out, the region's first when it is looked up. A running cluster keeps it."""
    vpc_cidr: str = "10.0.0.0/16"
    """Addresses of the cluster's network, /16 to /27; halved into a public and a private subnet. A
    running cluster keeps it."""

    def check(self) -> None:
        """Check that AWS takes the block and that half of it has room for the workers."""
        super().check()
        zone, cidr = self.availability_zone, self.vpc_cidr
        require(zone is None or _ZONE.fullmatch(zone), "availability_zone", zone, "like us-east-1a")
        block = ipv4_block("vpc_cidr", cidr)
        require(16 <= block.prefixlen <= 27, "vpc_cidr", cidr, "between /16 and /27")
        for taken, reason in TAKEN_BLOCKS.items():
            if block.overlaps(ipaddress.ip_network(taken)):
                raise SettingsError(f"vpc_cidr must not overlap {taken}, got {shown(cidr)}: {reason}")
        # The two subnets are the halves of the block.
        room = block.num_addresses // 2 - _RESERVED_ADDRESSES
        require(self.worker_count <= room, "worker_count", self.worker_count, f"at most {room} in vpc_cidr {cidr}")

    def check_region(self, region: str) -> None:
        """Refuse a zone of another region, once the region of the deploy is known."""
        zone = self.availability_zone
        require(zone is None or zone.startswith(region), "availability_zone", zone, f"a zone of {region}")


def first_zone(zones: Iterable[str], region: str) -> str | None:
    """Return the first by name of the region's own zones; the list also has Local Zones that the account opted in to.

    The deploy and ``dlcluster preflight`` both choose by this function.
    """
    own = re.compile(rf"{re.escape(region)}[a-z]")
    return min(filter(own.fullmatch, zones), default=None)


def zones_context_key(account: str, region: str) -> str:
    """Return the key of cdk.context.json under which the CDK keeps the zones of an account and region."""
    return f"availability-zones:account={account}:region={region}"
