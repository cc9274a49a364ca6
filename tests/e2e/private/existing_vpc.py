"""Make a VPC without internet as a company has it: its endpoints, the user's KMS key, and a permissions boundary."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cli.preflight.endpoints import GATEWAY_SERVICES
from local.faults.clients import client
from local.run.user import User
from stacks.storage.shared_storage import NFS_PORT
from tests.e2e.support.checkouts import DEPLOY_S
from tests.e2e.support.deployed_cluster import group_instances
from tests.endpoints import Endpoints, https_from
from tests.waiting import wait_until

NAME: Final = "existing"
"""Name of the cluster in it."""
BOUNDARY: Final = "limit-of-the-team"
VPC_BLOCK, SECONDARY_BLOCK = "10.8.0.0/16", "100.64.0.0/16"
PRIVATE_BLOCK: Final = "100.64.8.0/24"
OTHER_BLOCK: Final = "10.8.1.0/24"
"""Block of a subnet that is not in ``egress``."""


@dataclass(frozen=True, kw_only=True)
class ExistingVpc:
    """A VPC as a company has it: a subnet in a secondary block, whose only way to AWS is the VPC's endpoints."""

    vpc_id: str
    private: str
    key: str
    """ARN of the user's KMS key."""
    endpoints: Endpoints

    @property
    def hardened(self) -> dict[str, str]:
        return {"hardened": "true", "kms_key": self.key, "role_name_prefix": "team-", "permissions_boundary": BOUNDARY}

    @property
    def egress(self) -> list[str]:
        """Return where nodes may connect to: the nodes' block, and S3 and DynamoDB behind the gateways."""
        names = [f"com.amazonaws.{client('ec2').meta.region_name}.{service}" for service in GATEWAY_SERVICES]
        found = client("ec2").describe_managed_prefix_lists(Filters=[{"Name": "prefix-list-name", "Values": names}])
        return [SECONDARY_BLOCK, *sorted(each["PrefixListId"] for each in found["PrefixLists"])]

    @property
    def context(self) -> list[str]:
        network = {"vpc_id": self.vpc_id, "subnet_id": self.private, "egress": ",".join(self.egress)}
        settings = {**network, "ssh_location": "", **self.hardened}
        given = {"cluster_name": NAME, **settings}
        return [argument for name, value in given.items() for argument in ("-c", f"{name}={value}")]

    def description(self) -> Any:
        """Return what EC2 says of its subnets, routes and security groups."""
        ec2 = client("ec2")
        mine: Any = [{"Name": "vpc-id", "Values": [self.vpc_id]}]
        subnets = ec2.describe_subnets(Filters=mine)["Subnets"]
        tables = ec2.describe_route_tables(Filters=mine)["RouteTables"]
        groups = ec2.describe_security_groups(Filters=mine)["SecurityGroups"]
        free = {s["SubnetId"]: s["AvailableIpAddressCount"] for s in subnets}
        return free, tables, [group["GroupId"] for group in groups]


@dataclass(frozen=True, kw_only=True)
class PrivateCluster:
    """A deployed private cluster, as its user reaches it."""

    user: User
    """The user, with the ssh configuration that dlcluster printed."""
    checkout: Path

    def group(self, output: str) -> list[dict[str, Any]]:
        outputs = client("cloudformation").describe_stacks(StackName=NAME)["Stacks"][0]["Outputs"]
        return group_instances({entry["OutputKey"]: entry["OutputValue"] for entry in outputs}[output])

    @property
    def instances(self) -> list[dict[str, Any]]:
        """Return the master and the workers, in any order of these."""
        return [*self.group("MasterAutoScalingGroup"), *self.group("WorkerAutoScalingGroup")]

    def write_ssh_config(self) -> None:
        """Write what dlcluster prints, with more time to connect: a session starts three programs on a busy machine."""
        printed = self.in_checkout("dlcluster", "ssh-config", "--cluster", NAME)
        self.user.ssh_config.write_text(f"ConnectTimeout 120\n{printed}")

    def try_in_checkout(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=self.checkout,
            env={**self.user.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEPLOY_S,
            check=False,
        )

    def in_checkout(self, *command: str) -> str:
        done = self.try_in_checkout(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def nfs_with(block: str) -> Any:
    """Return a group's permissions for NFS from a block, or to it."""
    return [{"IpProtocol": "tcp", "FromPort": NFS_PORT, "ToPort": NFS_PORT, "IpRanges": [{"CidrIp": block}]}]


@contextmanager
def existing_file_system(vpc: ExistingVpc, *, name: str, subnet: str) -> Iterator[dict[str, str]]:
    """Make an EFS file system as a company has it, which admits the nodes; return its mount target in the subnet."""
    ec2, efs = client("ec2"), client("efs")
    group = ec2.create_security_group(GroupName=name, Description="NFS", VpcId=vpc.vpc_id)["GroupId"]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=nfs_with(PRIVATE_BLOCK))
    file_system = efs.create_file_system(CreationToken=name, Encrypted=True)["FileSystemId"]

    def is_available() -> bool:
        [description] = efs.describe_file_systems(FileSystemId=file_system)["FileSystems"]
        return bool(description["LifeCycleState"] == "available")

    wait_until(is_available, f"{file_system} to be available", timeout_s=60)
    made = efs.create_mount_target(FileSystemId=file_system, SubnetId=subnet, SecurityGroups=[group])
    yield {key: str(made[key]) for key in ("FileSystemId", "IpAddress")}
    efs.delete_mount_target(MountTargetId=made["MountTargetId"])
    efs.delete_file_system(FileSystemId=file_system)
    ec2.delete_security_group(GroupId=group)


@contextmanager
def other_subnet(vpc: ExistingVpc) -> Iterator[str]:
    """Make a subnet of the VPC that is not in ``egress``."""
    ec2 = client("ec2")
    made = ec2.create_subnet(VpcId=vpc.vpc_id, CidrBlock=OTHER_BLOCK, AvailabilityZone="us-east-1b")["Subnet"]
    yield made["SubnetId"]
    ec2.delete_subnet(SubnetId=made["SubnetId"])


@contextmanager
def existing_vpc() -> Iterator[ExistingVpc]:
    """Make the VPC, the key and the boundary, and delete them."""
    ec2 = client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock=VPC_BLOCK)["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": True})
    ec2.associate_vpc_cidr_block(VpcId=vpc_id, CidrBlock=SECONDARY_BLOCK)
    zone = "us-east-1b"
    private = ec2.create_subnet(VpcId=vpc_id, CidrBlock=PRIVATE_BLOCK, AvailabilityZone=zone)["Subnet"]["SubnetId"]
    key = client("kms").create_key()["KeyMetadata"]["Arn"]
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    policy = client("iam").create_policy(PolicyName=BOUNDARY, PolicyDocument=json.dumps(everything))
    boundary = policy["Policy"]["Arn"]
    table = ec2.create_route_table(VpcId=vpc_id)["RouteTable"]["RouteTableId"]
    association = ec2.associate_route_table(RouteTableId=table, SubnetId=private)["AssociationId"]
    group = ec2.create_security_group(GroupName="endpoints", Description="endpoints", VpcId=vpc_id)["GroupId"]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=https_from(PRIVATE_BLOCK))
    endpoints = Endpoints(ec2=ec2, vpc_id=vpc_id, subnet=private, route_table_id=table, security_group_id=group)
    made = endpoints.create()
    yield ExistingVpc(vpc_id=vpc_id, private=private, key=key, endpoints=endpoints)
    endpoints.delete(made.values())
    client("iam").delete_policy(PolicyArn=boundary)
    client("kms").schedule_key_deletion(KeyId=key.rpartition("/")[2], PendingWindowInDays=7)
    ec2.disassociate_route_table(AssociationId=association)
    ec2.delete_route_table(RouteTableId=table)
    ec2.delete_security_group(GroupId=group)
    ec2.delete_subnet(SubnetId=private)
    ec2.delete_vpc(VpcId=vpc_id)
