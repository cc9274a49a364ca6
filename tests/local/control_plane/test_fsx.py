"""Test that FSx makes, describes and deletes file systems of Lustre, and that the data plane serves available ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import moto
import pytest
from botocore.exceptions import ClientError
from moto.fsx.models import FileSystem, FSxBackend

from local.control_plane import fsx
from local.storage.mount_targets import MountTarget, StorageFaults, read_mount_targets
from tests.local.control_plane.harness import REGION

BLOCK = "10.8.0.0/24"
SCRATCH_2 = {"DeploymentType": "SCRATCH_2"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A subnet, and a security group without ingress."""

    fsx: Any
    ec2: Any
    vpc_id: str
    subnet: str
    group: str

    def allow(self, **source: Any) -> None:
        """Open Lustre's first port."""
        permission = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, **source}
        self.ec2.authorize_security_group_ingress(GroupId=self.group, IpPermissions=[permission])

    def create(self, **changes: Any) -> dict[str, Any]:
        given = {"SubnetIds": [self.subnet], "SecurityGroupIds": [self.group], "LustreConfiguration": SCRATCH_2}
        made = self.fsx.create_file_system(FileSystemType="LUSTRE", StorageCapacity=1200, **(given | changes))
        return dict(made["FileSystem"])

    def described(self, file_system: str) -> dict[str, Any]:
        return dict(self.fsx.describe_file_systems(FileSystemIds=[file_system])["FileSystems"][0])

    def served(self) -> tuple[MountTarget, ...]:
        efs: Any = boto3.client("efs")
        return read_mount_targets(efs, self.fsx, self.ec2, faults=StorageFaults())


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    for name, value in {"DEFAULT_REGION": REGION, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(fsx, "CREATING_S", 0.0)
    for name in ("create_file_system", "describe_file_systems", "delete_file_system"):
        monkeypatch.setattr(FSxBackend, name, getattr(FSxBackend, name))  # restored after the test
    monkeypatch.setattr(FileSystem, "to_dict", FileSystem.to_dict)
    fsx.install()
    with moto.mock_aws():
        ec2 = boto3.client("ec2")
        vpc_id = str(ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"])
        subnet = str(ec2.create_subnet(VpcId=vpc_id, CidrBlock=BLOCK)["Subnet"]["SubnetId"])
        group = str(ec2.create_security_group(GroupName="lustre", Description="lustre", VpcId=vpc_id)["GroupId"])
        yield Network(fsx=boto3.client("fsx"), ec2=ec2, vpc_id=vpc_id, subnet=subnet, group=group)


def test_file_system_is_served_once_it_is_available(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.allow(IpRanges=[{"CidrIp": BLOCK}])
    monkeypatch.setattr(fsx, "CREATING_S", 3600.0)
    assert network.create()["Lifecycle"] == "CREATING"
    assert network.served() == ()
    monkeypatch.setattr(fsx, "CREATING_S", 0.0)
    made = network.create()
    file_system = network.described(made["FileSystemId"])
    assert (file_system["Lifecycle"], file_system["VpcId"], file_system["SubnetIds"]) == (
        "AVAILABLE",
        network.vpc_id,
        [network.subnet],
    )
    [target] = network.served()
    assert (target.file_system, target.host) == (made["FileSystemId"], made["DNSName"])
    assert (target.vpc_id, target.group_ids) == (network.vpc_id, (network.group,))
    assert target.mount_name == made["LustreConfiguration"]["MountName"]
    assert len(target.mount_name) == 8
    assert target.address.startswith("10.8.0.")
    network.fsx.delete_file_system(FileSystemId=made["FileSystemId"])
    assert network.served() == ()
    with pytest.raises(ClientError, match="FileSystemNotFound"):
        network.described(made["FileSystemId"])
    with pytest.raises(ClientError, match="InvalidNetworkInterfaceID"):
        network.ec2.describe_network_interfaces(NetworkInterfaceIds=made["NetworkInterfaceIds"])


def test_first_generation_has_one_mount_name_for_all(network: Network) -> None:
    network.allow(UserIdGroupPairs=[{"GroupId": network.group}])
    made = network.create(LustreConfiguration={})
    assert made["LustreConfiguration"] == {"DeploymentType": "SCRATCH_1", "MountName": "fsx"}


@pytest.mark.parametrize(
    ("changes", "allowed", "message"),
    [
        ({}, {}, "do not permit Lustre LNET network traffic on port 988"),
        ({}, {"IpRanges": [{"CidrIp": "10.8.0.0/28"}]}, "do not permit Lustre LNET network traffic on port 988"),
        ({"SubnetIds": ["subnet-01234567"]}, {}, "The subnet ID 'subnet-01234567' does not exist"),
        ({"SubnetIds": []}, {}, "exactly one subnet must be provided, got 0"),
        ({"SecurityGroupIds": ["sg-01234567"]}, {}, "The security group 'sg-01234567' does not exist in the VPC"),
    ],
)
def test_network_that_does_not_suit_is_refused(
    network: Network, changes: dict[str, Any], allowed: dict[str, Any], message: str
) -> None:
    if allowed:
        network.allow(**allowed)
    with pytest.raises(ClientError, match=message):
        network.create(**changes)
    assert network.fsx.describe_file_systems()["FileSystems"] == []
