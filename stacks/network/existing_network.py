"""Use an existing network: the user's VPC and subnets, looked up once and kept in cdk.context.json.

The stack changes nothing in them. The nodes' addresses come from the subnets. A subnet may therefore be in the VPC's
first address block or in a secondary one.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from bootstrap import contract
from stacks.settings.base import SettingsError, require
from stacks.settings.props import ClusterProps

_DOCKER: Final = ipaddress.IPv4Network("172.17.0.0/16")
_PUBLIC: Final = "Public"
_PRIVATE: Final = "Private"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingSubnet:
    """A subnet as the CDK's lookup describes it."""

    subnet_id: str
    vpc_id: str
    cidr: str
    zone: str
    route_table_id: str
    is_public: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingSubnets:
    """Subnets of the two kinds of nodes, which may be the same subnet."""

    master: ExistingSubnet
    worker: ExistingSubnet
    vpc_cidrs: tuple[str, ...]
    """Smallest set of CIDR blocks that contains every subnet of the VPC."""


class ExistingNetwork(Construct):
    """The user's VPC, with the interface of ``Network``."""

    def __init__(self, scope: Construct, construct_id: str, *, subnets: ExistingSubnets) -> None:
        super().__init__(scope, construct_id)
        master, worker = subnets.master, subnets.worker
        self.vpc = ec2.Vpc.from_vpc_attributes(self, "Vpc", vpc_id=worker.vpc_id, availability_zones=[worker.zone])
        self.node_cidrs = tuple(dict.fromkeys((master.cidr, worker.cidr)))
        """Blocks that contain every node's address."""
        self.vpc_cidrs = subnets.vpc_cidrs
        self._subnets = {
            contract.MASTER: _imported(self, "MasterSubnet", master),
            contract.WORKER: _imported(self, "WorkerSubnet", worker),
        }

    def subnet_for(self, node_type: contract.NodeType) -> ec2.ISubnet:
        """Return the subnet of a type's nodes."""
        return self._subnets[node_type]

    @property
    def worker_subnets(self) -> list[ec2.ISubnet]:
        """Return the subnets in which workers may be."""
        return [self._subnets[contract.WORKER]]


def _imported(scope: Construct, construct_id: str, subnet: ExistingSubnet) -> ec2.ISubnet:
    return ec2.Subnet.from_subnet_attributes(
        scope,
        construct_id,
        subnet_id=subnet.subnet_id,
        availability_zone=subnet.zone,
        route_table_id=subnet.route_table_id,
    )


def existing_subnets(scope: Construct, props: ClusterProps) -> ExistingSubnets:
    """Look up the settings' subnets. Raises SettingsError for a subnet that cannot host the cluster."""
    vpc_id, worker_id, master_id = props.vpc_id, props.subnet_id, props.master_subnet
    if vpc_id is None or worker_id is None or master_id is None:
        raise TypeError("the settings name no existing network")
    by_id = _look_up(scope, vpc_id, subnet_ids=[worker_id, master_id], kind=_PRIVATE if props.private else _PUBLIC)
    for name, subnet_id in (("subnet_id", worker_id), ("master_subnet_id", master_id)):
        require(
            subnet_id in by_id, name, subnet_id, f"a subnet of {vpc_id}: {', '.join(sorted(by_id)) or 'it has none'}"
        )
        cidr = by_id[subnet_id].cidr
        if ipaddress.IPv4Network(cidr).overlaps(_DOCKER):
            raise SettingsError(f"{name} must not overlap {_DOCKER}, got {cidr}: Docker's bridge has it on every node")
    worker, master = by_id[worker_id], by_id[master_id]
    require(master.zone == worker.zone, "master_subnet_id", master_id, f"in the zone of subnet_id, {worker.zone}")
    subnets = ExistingSubnets(master=master, worker=worker, vpc_cidrs=_blocks(by_id.values()))
    in_zone = [subnet for subnet in by_id.values() if subnet.zone == worker.zone]
    if props.private:
        _require_private(subnets, in_zone)
    else:
        _require_public(master, in_zone)
    return subnets


def _blocks(subnets: Iterable[ExistingSubnet]) -> tuple[str, ...]:
    return tuple(map(str, ipaddress.collapse_addresses(ipaddress.IPv4Network(each.cidr) for each in subnets)))


def _require_public(master: ExistingSubnet, in_zone: list[ExistingSubnet]) -> None:
    public = ", ".join(subnet.subnet_id for subnet in in_zone if subnet.is_public) or f"{master.vpc_id} has none there"
    allowed = f"a public subnet, as login needs the master's public address: {public}"
    require(master.is_public, "master_subnet_id", master.subnet_id, allowed)


def _require_private(subnets: ExistingSubnets, in_zone: list[ExistingSubnet]) -> None:
    """Refuse subnets that lead to an internet gateway: without a public address, a node would reach nothing there."""
    private = ", ".join(subnet.subnet_id for subnet in in_zone if not subnet.is_public)
    for name, subnet in (("subnet_id", subnets.worker), ("master_subnet_id", subnets.master)):
        allowed = f"a private subnet with private: {private or f'{subnet.vpc_id} has none there'}"
        require(not subnet.is_public, name, subnet.subnet_id, allowed)


def _look_up(scope: Construct, vpc_id: str, *, subnet_ids: list[str], kind: str) -> dict[str, ExistingSubnet]:
    stack = cdk.Stack.of(scope)
    if cdk.Token.is_unresolved(stack.account) or cdk.Token.is_unresolved(stack.region):
        raise SettingsError(f"vpc_id {vpc_id} needs credentials, as its subnets are looked up in the account")
    answer = cdk.ContextProvider.get_value(
        scope,
        # VPC_PROVIDER of the cloud assembly schema: jsii's enumerations hide their values.
        provider="vpc-provider",
        props={"filter": {"vpc-id": vpc_id}, "returnAsymmetricSubnets": True, "returnVpnGateways": False},
        # The CDK discards the first pass, which runs before the lookup.
        dummy_value=_placeholder(subnet_ids, zone=f"{stack.region}a", kind=kind),
    )
    return {
        subnet["subnetId"]: ExistingSubnet(
            subnet_id=subnet["subnetId"],
            vpc_id=vpc_id,
            cidr=subnet["cidr"],
            zone=subnet["availabilityZone"],
            route_table_id=subnet["routeTableId"],
            is_public=group["type"] == _PUBLIC,
        )
        for group in answer.value["subnetGroups"]
        for subnet in group["subnets"]
    }


def _placeholder(subnet_ids: list[str], *, zone: str, kind: str) -> dict[str, Any]:
    known = {"cidr": "10.0.0.0/24", "availabilityZone": zone, "routeTableId": "rtb-12345678"}
    subnets = [{"subnetId": each, **known} for each in subnet_ids]
    return {"subnetGroups": [{"type": kind, "subnets": subnets}]}
