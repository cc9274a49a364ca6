"""Define the settings of a cluster's network: a VPC of its own, or subnets of one that exists."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stacks.settings.base import SettingsError, require, shown
from stacks.settings.nodes import CapacitySettings
from stacks.settings.parsing import PARSER, parse_cidr, parse_list

TAKEN_BLOCKS: Final = {
    "0.0.0.0/8": "EC2 refuses it",
    "127.0.0.0/8": "EC2 refuses it",
    "169.254.0.0/16": "EC2 refuses it",
    "172.17.0.0/16": "Docker's bridge has it on every node",
    "224.0.0.0/4": "EC2 refuses it",
}
"""Blocks that no cluster network may overlap (Amazon VPC User Guide, "IPv4 VPC CIDR blocks")."""
_ZONE: Final = re.compile(r"[a-z]{2}(?:-[a-z0-9]{1,12}){1,6}-[0-9]{1,2}[a-z]")
_VPC: Final = re.compile(r"vpc-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_SUBNET: Final = re.compile(r"subnet-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_PREFIX_LIST: Final = re.compile(r"pl-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_HEX: Final = "and 8 or 17 hex digits"
_OWN_VPC_CIDR: Final = "10.0.0.0/16"
_RESERVED_ADDRESSES: Final = 5
"""Number of addresses that AWS reserves in each subnet."""
_MAX_SUBNET_PREFIX: Final = 28
"""Prefix length of the smallest subnet that AWS creates."""
MAX_ZONES: Final = 6
"""Number of zones of the largest region."""
ANYWHERE: Final = "0.0.0.0/0"
MAX_EGRESS: Final = 28
"""Maximum number of entries. AWS allows 60 outbound rules in a security group by default ("Amazon VPC quotas"): each
entry needs two, the other nodes two and shared storage one."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(CapacitySettings):
    """The network, which needs an address for every node."""

    availability_zone: str | None = None
    """Zone of all nodes. Default: the region's first. Cannot be changed after creation, except by ``dlcluster up``."""
    zones: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """Up to 6 candidate zones, preferred ones first: ``dlcluster up`` starts all nodes in one of them and records it as
    ``availability_zone``; until then, a deploy starts none. Cannot be changed after creation."""
    vpc_cidr: str = _OWN_VPC_CIDR
    """Addresses of the cluster's network, /16 to /27; halved into a public and a private subnet, or divided into a pair
    for each of ``zones``. Cannot be changed after creation."""
    vpc_id: str | None = None
    """Existing VPC for the nodes, which the stack does not change. Default: the stack creates one. Cannot be
    changed after creation."""
    subnet_id: str | None = None
    """Subnet of the workers in ``vpc_id``; it determines the zone of all nodes. Cannot be changed after creation."""
    master_subnet_id: str | None = None
    """Public subnet of the master, in the zone of ``subnet_id``. Default: ``subnet_id`` itself. Cannot be changed
    after creation."""
    egress: tuple[str, ...] = field(default=(ANYWHERE,), metadata={PARSER: parse_list})
    """Addresses outside the cluster to which nodes may connect by TCP and UDP: at most 28 IPv4 blocks and IDs of prefix
    lists (``pl-``). Nodes must reach AWS's APIs."""

    def check(self) -> None:
        """Check the addresses of a new network, or the IDs of an existing one, and where its nodes may connect to."""
        super().check()
        zone = self.availability_zone
        require(zone is None or _ZONE.fullmatch(zone), "availability_zone", zone, "like us-east-1a")
        self._check_zones()
        self._check_own_vpc()
        self._check_existing_vpc()
        self._check_egress()

    def warnings(self) -> dict[str, str]:
        """Warn of limits that may keep nodes from AWS; in an existing VPC, ``dlcluster preflight`` checks them."""
        warnings = super().warnings()
        if self.limits_egress and self.vpc_id is None:
            warnings["egress"] = (
                f"egress {','.join(self.egress)} may keep nodes from AWS, then none becomes ready: they must reach the "
                "region's public endpoints of autoscaling, cloudformation, ec2, logs, ssm and ssmmessages, and the "
                "prefix lists of S3 and DynamoDB"
            )
        return warnings

    @property
    def limits_egress(self) -> bool:
        """Return True if there are addresses to which nodes may not connect."""
        return ANYWHERE not in self.egress

    @property
    def master_subnet(self) -> str | None:
        """Return the existing subnet of the master, if any."""
        return self.master_subnet_id or self.subnet_id

    @property
    def candidate_zones(self) -> tuple[str, ...]:
        """Return the candidates sorted by name, because their order is not part of the network."""
        return tuple(sorted(self.zones))

    @property
    def has_zone(self) -> bool:
        """Return True once the nodes' zone is known, which ``dlcluster up`` chooses among ``zones``."""
        return not self.zones or self.availability_zone is not None

    def _check_zones(self) -> None:
        zones, chosen = self.zones, self.availability_zone
        require(len(zones) <= MAX_ZONES, "zones", zones, f"at most {MAX_ZONES} zones")
        for zone in zones:
            require(_ZONE.fullmatch(zone), "zones", zone, "zones like us-east-1a")
        if zones and self.vpc_id is not None:
            raise SettingsError("zones must not be set with vpc_id: the subnet determines the zone")
        if zones and chosen is not None:
            require(chosen in zones, "availability_zone", chosen, f"one of zones, {', '.join(zones)}")

    def _check_existing_vpc(self) -> None:
        vpc, subnet, master = self.vpc_id, self.subnet_id, self.master_subnet_id
        require(vpc is None or _VPC.fullmatch(vpc), "vpc_id", vpc, f"vpc- {_HEX}")
        for name, value in (("subnet_id", subnet), ("master_subnet_id", master)):
            require(value is None or _SUBNET.fullmatch(value), name, value, f"subnet- {_HEX}")
            if value is not None and vpc is None:
                raise SettingsError(f"{name} must not be set without vpc_id, got {shown(value)}")
        if vpc is None:
            return
        require(subnet is not None, "subnet_id", subnet, f"a subnet of vpc_id {vpc}")
        if self.availability_zone is not None:
            raise SettingsError("availability_zone must not be set with vpc_id: the subnet determines the zone")
        if self.vpc_cidr != _OWN_VPC_CIDR:
            raise SettingsError("vpc_cidr must not be set with vpc_id: the subnets determine the addresses")

    def _check_egress(self) -> None:
        count = len(self.egress)
        require(1 <= count <= MAX_EGRESS, "egress", count, f"1 to {MAX_EGRESS} blocks and prefix lists")
        for peer in self.egress:
            if peer[0].isdigit():
                parse_cidr("egress", peer)
            else:
                require(_PREFIX_LIST.fullmatch(peer), "egress", peer, f"IPv4 blocks and prefix lists, pl- {_HEX}")

    def _check_own_vpc(self) -> None:
        """Check that AWS accepts the block and that half of it has room for the workers."""
        cidr = self.vpc_cidr
        block = parse_cidr("vpc_cidr", cidr)
        require(16 <= block.prefixlen <= 27, "vpc_cidr", cidr, "between /16 and /27")
        for taken, reason in TAKEN_BLOCKS.items():
            if block.overlaps(ipaddress.ip_network(taken)):
                raise SettingsError(f"vpc_cidr must not overlap {taken}, got {shown(cidr)}: {reason}")
        # Divide it into equal subnets whose number is a power of two: for one zone, the halves of the block.
        subnets = 1 << (2 * max(1, len(self.zones)) - 1).bit_length()
        longest = _MAX_SUBNET_PREFIX - subnets.bit_length() + 1
        require(block.prefixlen <= longest, "vpc_cidr", cidr, f"at most /{longest} for {len(self.zones)} zones")
        room = block.num_addresses // subnets - _RESERVED_ADDRESSES
        fits = self.worker_count <= room or self.vpc_id is not None
        require(fits, "worker_count", self.worker_count, f"at most {room} in vpc_cidr {cidr}")

    def check_region(self, region: str) -> None:
        """Refuse a zone of another region once the deploy's region is known."""
        zone = self.availability_zone
        require(zone is None or zone.startswith(region), "availability_zone", zone, f"a zone of {region}")
        for candidate in self.zones:
            require(candidate.startswith(region), "zones", candidate, f"zones of {region}")


def first_zone(zones: Iterable[str], region: str) -> str | None:
    """Return the first by name of the region's own zones, ignoring Local Zones that the account opted in to.

    Both the deploy and ``dlcluster preflight`` choose with this function.
    """
    zone_name = re.compile(rf"{re.escape(region)}[a-z]")
    return min(filter(zone_name.fullmatch, zones), default=None)


def zones_context_key(account: str, region: str) -> str:
    """Return the key of cdk.context.json under which the CDK stores the zones of an account and region."""
    return f"availability-zones:account={account}:region={region}"
