from typing import Any

import pytest

from cli.preflight.storage.shared_storage import shared_storage
from tests.cli.preflight.conftest import Account

ID = "fs-0123456789abcdef0"
VPC, SUBNET, GROUP, TARGET = (
    "vpc-0123456789abcdef0",
    "subnet-0123456789abcdef0",
    "sg-01234567",
    "fsmt-0123456789abcdef0",
)
ZONE, BLOCK = "eu-west-1a", "10.0.1.0/24"


def system(state: str = "available") -> dict[str, Any]:
    size = {"Value": 0}
    return {
        "OwnerId": "1", "CreationToken": "t", "FileSystemId": ID, "CreationTime": 0, "LifeCycleState": state,
        "NumberOfMountTargets": 1, "SizeInBytes": size, "PerformanceMode": "generalPurpose", "Tags": [],
    }  # fmt: skip


def mount_target(vpc: str = VPC, zone: str = ZONE) -> dict[str, Any]:
    return {
        "MountTargetId": TARGET, "FileSystemId": ID, "SubnetId": SUBNET, "LifeCycleState": "available",
        "VpcId": vpc, "AvailabilityZoneName": zone,
    }  # fmt: skip


@pytest.fixture
def own(account: Account) -> Account:
    """A cluster with a VPC of its own, and a file system that exists."""
    account.settings["shared_storage"] = f"efs:{ID}"
    return account


@pytest.fixture
def existing(own: Account) -> Account:
    """A cluster in a VPC that exists."""
    del own.settings["availability_zone"]
    own.settings |= {"vpc_id": VPC, "subnet_id": SUBNET}
    return own


def in_the_vpc(account: Account, target: dict[str, Any], *, port: int = 2049, cidr: str = BLOCK) -> None:
    account.answers("efs", "describe_file_systems", {"FileSystems": [system()]})
    account.answers("efs", "describe_mount_targets", {"MountTargets": [target]})
    account.answers("ec2", "describe_subnets", {"Subnets": [{"AvailabilityZone": ZONE, "CidrBlock": BLOCK}]})
    if (target["VpcId"], target["AvailabilityZoneName"]) != (VPC, ZONE):
        return
    account.answers("efs", "describe_mount_target_security_groups", {"SecurityGroups": [GROUP]})
    rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": cidr}]}
    account.answers("ec2", "describe_security_groups", {"SecurityGroups": [{"IpPermissions": [rule]}]})


@pytest.mark.parametrize(("setting", "told"), [("none", "none"), ("efs", "which cdk destroy keeps: $0.30")])
def test_without_a_file_system_of_the_users_nothing_is_asked(account: Account, setting: str, told: str) -> None:
    account.settings["shared_storage"] = setting
    found = account.finds(shared_storage)
    assert (found.level, told in found.sentence) == ("ok", True)


def test_fails_when_there_is_no_such_file_system(own: Account) -> None:
    own.refuses("efs", "describe_file_systems", "FileSystemNotFound")
    assert own.finds(shared_storage).sentence == f"no file system {ID} in eu-west-1"


def test_fails_when_the_file_system_is_not_ready(own: Account) -> None:
    own.answers("efs", "describe_file_systems", {"FileSystems": [system("deleting")]})
    assert own.finds(shared_storage).sentence == f"{ID} is deleting"


def test_a_file_system_without_mount_targets_fits_a_vpc_of_its_own(own: Account) -> None:
    own.answers("efs", "describe_file_systems", {"FileSystems": [system()]})
    own.answers("efs", "describe_mount_targets", {"MountTargets": []})
    assert own.finds(shared_storage).level == "ok"


def test_a_mount_target_in_the_zone_that_lets_the_subnet_in_is_fine(existing: Account) -> None:
    in_the_vpc(existing, mount_target())
    assert existing.finds(shared_storage).level == "ok"


@pytest.mark.parametrize(
    ("target", "port", "cidr", "told", "fix"),
    [
        (mount_target(zone="eu-west-1b"), 2049, BLOCK, f"no mount target in {ZONE}", "aws efs create-mount-target"),
        (mount_target(vpc="vpc-9"), 2049, BLOCK, "are in vpc-9", "same VPC"),
        (
            mount_target(),
            22,
            BLOCK,
            f"lets port 2049 in from {BLOCK}",
            f"--group-id {GROUP} --protocol tcp --port 2049",
        ),
        (mount_target(), 2049, "10.0.1.0/28", f"lets port 2049 in from {BLOCK}", f"--cidr {BLOCK}"),
    ],
)
def test_fails_when_the_nodes_could_not_reach_it(
    existing: Account, target: dict[str, Any], port: int, cidr: str, told: str, fix: str
) -> None:
    in_the_vpc(existing, target, port=port, cidr=cidr)
    found = existing.finds(shared_storage)
    assert found.level == "problem"
    assert told in found.sentence
    assert fix in found.fix
