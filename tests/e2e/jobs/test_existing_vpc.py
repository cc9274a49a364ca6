"""Test a cluster in an existing VPC: its nodes train in the user's subnets, and destroying it changes none of them.

It needs a cluster of its own; it is in jobs/ because this part of the gate is the shortest.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from local.faults.clients import client
from local.run.user import User, deploy_arguments
from tests.e2e.checkouts import DEPLOY_S, copy_checkout
from tests.e2e.conftest import group_instances

NAME = "existing"
NODES = 2
VPC_BLOCK, SECONDARY_BLOCK = "10.8.0.0/16", "100.64.0.0/16"
PUBLIC_BLOCK, PRIVATE_BLOCK = "10.8.1.0/24", "100.64.8.0/24"


@dataclass(frozen=True, kw_only=True)
class ExistingVpc:
    """A VPC as a company has it: a private subnet in a secondary block, and a public one with the main route table."""

    vpc_id: str
    public: str
    private: str

    @property
    def context(self) -> list[str]:
        settings = {"vpc_id": self.vpc_id, "subnet_id": self.private, "master_subnet_id": self.public}
        given = {"cluster_name": NAME, **settings}
        return [word for name, value in given.items() for word in ("-c", f"{name}={value}")]

    def description(self) -> Any:
        """Return EC2's description of its subnets, routes and security groups."""
        ec2 = client("ec2")
        mine: Any = [{"Name": "vpc-id", "Values": [self.vpc_id]}]
        subnets = ec2.describe_subnets(Filters=mine)["Subnets"]
        tables = ec2.describe_route_tables(Filters=mine)["RouteTables"]
        groups = ec2.describe_security_groups(Filters=mine)["SecurityGroups"]
        free = {s["SubnetId"]: s["AvailableIpAddressCount"] for s in subnets}
        return free, tables, [group["GroupId"] for group in groups]


@pytest.fixture(scope="module")
def vpc() -> Iterator[ExistingVpc]:
    ec2 = client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock=VPC_BLOCK)["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": True})
    ec2.associate_vpc_cidr_block(VpcId=vpc_id, CidrBlock=SECONDARY_BLOCK)
    public, private = (
        ec2.create_subnet(VpcId=vpc_id, CidrBlock=block, AvailabilityZone="us-east-1b")["Subnet"]["SubnetId"]
        for block in (PUBLIC_BLOCK, PRIVATE_BLOCK)
    )
    ec2.modify_subnet_attribute(SubnetId=public, MapPublicIpOnLaunch={"Value": True})
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc_id)
    [main] = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["RouteTables"]
    ec2.create_route(RouteTableId=main["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=public, AllocationId=address)["NatGateway"]["NatGatewayId"]
    table = ec2.create_route_table(VpcId=vpc_id)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    association = ec2.associate_route_table(RouteTableId=table, SubnetId=private)["AssociationId"]
    yield ExistingVpc(vpc_id=vpc_id, public=public, private=private)
    ec2.disassociate_route_table(AssociationId=association)
    ec2.delete_route_table(RouteTableId=table)
    ec2.delete_nat_gateway(NatGatewayId=nat)
    [used] = ec2.describe_addresses(AllocationIds=[address])["Addresses"]
    ec2.disassociate_address(AssociationId=used["AssociationId"])
    ec2.release_address(AllocationId=address)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc_id)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    for subnet_id in (public, private):
        ec2.delete_subnet(SubnetId=subnet_id)
    ec2.delete_vpc(VpcId=vpc_id)


def test_a_cluster_in_an_existing_vpc_deploys_runs_and_leaves_it(user: User, vpc: ExistingVpc, tmp_path: Path) -> None:
    checkout, before = copy_checkout(tmp_path), vpc.description()

    def in_checkout(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=dict(user.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEPLOY_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    deploy = ["cdk", *deploy_arguments(nodes=NODES), *vpc.context]
    assert f"{vpc.vpc_id} has room, routes and name servers for the nodes" in preflight(user, checkout, deploy)
    try:
        in_checkout(*deploy)
        outputs = client("cloudformation").describe_stacks(StackName=NAME)["Stacks"][0]["Outputs"]
        groups = {output["OutputKey"]: output["OutputValue"] for output in outputs}
        [master] = group_instances(groups["MasterAutoScalingGroup"])
        [worker] = group_instances(groups["WorkerAutoScalingGroup"])
        for instance, subnet, block in ((master, vpc.public, PUBLIC_BLOCK), (worker, vpc.private, PRIVATE_BLOCK)):
            assert (instance["VpcId"], instance["SubnetId"]) == (vpc.vpc_id, subnet)
            assert IPv4Address(instance["PrivateIpAddress"]) in IPv4Network(block)
        said = in_checkout("dlcluster", "run", "--cluster", NAME, "--", "launch", "hostname", "-I")
        assert all(str(instance["PrivateIpAddress"]) in said for instance in (master, worker)), said
    finally:
        in_checkout("cdk", "destroy", "--force", *vpc.context)
    assert vpc.description() == before


def preflight(user: User, checkout: Path, deploy: list[str]) -> str:
    """Return what preflight finds; the local AWS does not answer all of its questions."""
    context = deploy[deploy.index("-c") :]
    return subprocess.run(
        ["dlcluster", "preflight", *context],
        cwd=checkout,
        env=dict(user.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEPLOY_S,
        check=False,
    ).stdout
