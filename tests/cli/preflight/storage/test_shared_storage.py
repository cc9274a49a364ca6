"""Test the check of an existing file system, EFS or Lustre."""

import json
from typing import Any

import pytest

from cli.preflight.storage.shared_storage import check_shared_storage
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

ID = "fs-0123456789abcdef0"
VPC, SUBNET, GROUP, TARGET = (
    "vpc-0123456789abcdef0",
    "subnet-0123456789abcdef0",
    "sg-01234567",
    "fsmt-0123456789abcdef0",
)
ZONE, BLOCK = "eu-west-1a", "10.0.1.0/24"


def system(state: str = "available", **more: str) -> dict[str, Any]:
    size = {"Value": 0}
    return {
        "OwnerId": "1", "CreationToken": "t", "FileSystemId": ID, "CreationTime": 0, "LifeCycleState": state,
        "NumberOfMountTargets": 1, "SizeInBytes": size, "PerformanceMode": "generalPurpose", "Tags": [],
        **more,
    }  # fmt: skip


def mount_target(vpc: str = VPC, zone: str = ZONE) -> dict[str, Any]:
    return {
        "MountTargetId": TARGET, "FileSystemId": ID, "SubnetId": SUBNET, "LifeCycleState": "available",
        "VpcId": vpc, "AvailabilityZoneName": zone,
    }  # fmt: skip


@pytest.fixture
def account_with_own_vpc(account: Account) -> Account:
    """Return a cluster with its own VPC, and an existing file system."""
    account.settings["shared_storage"] = f"efs:{ID}"
    return account


@pytest.fixture
def account_with_existing_vpc(account_with_own_vpc: Account) -> Account:
    """Return a cluster in an existing VPC."""
    del account_with_own_vpc.settings["availability_zone"]
    account_with_own_vpc.settings |= {"vpc_id": VPC, "subnet_id": SUBNET}
    return account_with_own_vpc


def described(account: Account, policy: Any = None, **more: str) -> None:
    """Answer for an existing file system, with or without a policy."""
    account.answers("efs", "describe_file_systems", {"FileSystems": [system(**more)]})
    if policy is None:
        account.refuses("efs", "describe_file_system_policy", "PolicyNotFound", {"FileSystemId": ID})
    else:
        answer = {"FileSystemId": ID, "Policy": json.dumps({"Version": "2012-10-17", "Statement": policy})}
        account.answers("efs", "describe_file_system_policy", answer)


def in_the_vpc(account: Account, target: dict[str, Any], *, port: int = 2049, cidr: str = BLOCK) -> None:
    described(account)
    account.answers("efs", "describe_mount_targets", {"MountTargets": [target]})
    account.answers("ec2", "describe_subnets", {"Subnets": [{"AvailabilityZone": ZONE, "CidrBlock": BLOCK}]})
    if (target["VpcId"], target["AvailabilityZoneName"]) != (VPC, ZONE):
        return
    account.answers("efs", "describe_mount_target_security_groups", {"SecurityGroups": [GROUP]})
    rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": cidr}]}
    account.answers("ec2", "describe_security_groups", {"SecurityGroups": [{"IpPermissions": [rule]}]})


@pytest.mark.parametrize(("setting", "message"), [("none", "none"), ("efs", "which cdk destroy keeps: $0.30")])
def test_cluster_without_an_existing_file_system_makes_no_call(account: Account, setting: str, message: str) -> None:
    account.settings["shared_storage"] = setting
    found = account.finds(check_shared_storage)
    assert (found.level, message in found.sentence) == ("ok", True)


def test_missing_file_system_is_a_problem(account_with_own_vpc: Account) -> None:
    account_with_own_vpc.refuses("efs", "describe_file_systems", "FileSystemNotFound")
    assert account_with_own_vpc.finds(check_shared_storage).sentence == f"no file system {ID} in eu-west-1"


def test_file_system_that_is_not_ready_is_a_problem(account_with_own_vpc: Account) -> None:
    account_with_own_vpc.answers("efs", "describe_file_systems", {"FileSystems": [system("deleting")]})
    assert account_with_own_vpc.finds(check_shared_storage).sentence == f"{ID} is deleting"


def test_file_system_without_mount_targets_suits_a_new_vpc(account_with_own_vpc: Account) -> None:
    described(account_with_own_vpc)
    account_with_own_vpc.answers("efs", "describe_mount_targets", {"MountTargets": []})
    assert account_with_own_vpc.finds(check_shared_storage).level == "ok"


def test_reachable_mount_target_in_the_zone_passes(account_with_existing_vpc: Account) -> None:
    in_the_vpc(account_with_existing_vpc, mount_target())
    assert account_with_existing_vpc.finds(check_shared_storage).level == "ok"


@pytest.mark.parametrize(
    ("target", "port", "cidr", "message", "fix"),
    [
        (mount_target(zone="eu-west-1b"), 2049, BLOCK, f"no mount target in {ZONE}", "aws efs create-mount-target"),
        (mount_target(vpc="vpc-9"), 2049, BLOCK, "are in vpc-9", "same VPC"),
        (
            mount_target(),
            22,
            BLOCK,
            f"lets port 2049 in from {BLOCK}",
            f"--group-id {GROUP} --ip-permissions 'IpProtocol=tcp,FromPort=2049,ToPort=2049,IpRanges=[",
        ),
        (mount_target(), 2049, "10.0.1.0/28", f"lets port 2049 in from {BLOCK}", f"CidrIp={BLOCK}"),
    ],
)
def test_unreachable_file_system_is_a_problem_with_a_fix(
    account_with_existing_vpc: Account, target: dict[str, Any], port: int, cidr: str, message: str, fix: str
) -> None:
    in_the_vpc(account_with_existing_vpc, target, port=port, cidr=cidr)
    found = account_with_existing_vpc.finds(check_shared_storage)
    assert found.level == "problem"
    assert message in found.sentence
    assert fix in found.fix


CLIENT = [f"elasticfilesystem:Client{action}" for action in ("Mount", "Write", "RootAccess")]
BY_MOUNT_TARGET = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
EVERYBODY: dict[str, Any] = {
    "Effect": "Allow", "Principal": {"AWS": "*"}, "Action": CLIENT, "Condition": BY_MOUNT_TARGET,
}  # fmt: skip
TLS_ONLY = {
    "Effect": "Deny", "Principal": {"AWS": "*"}, "Action": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}  # fmt: skip
CLIENT_ACCESS_POINT = "elasticfilesystem:AccessPointArn"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Trainer"


def deny(**more: Any) -> dict[str, Any]:
    return {"Sid": "Ours", "Effect": "Deny", "Principal": "*", "Action": "elasticfilesystem:Client*", **more}


@pytest.mark.parametrize(
    ("policy", "level", "message"),
    [
        ([EVERYBODY, TLS_ONLY], "ok", f"the nodes can mount {ID}"),
        (EVERYBODY | {"Principal": "*"}, "ok", ""),
        # "Prevent anonymous access" of EFS's console, and the CDK's own policy.
        (EVERYBODY | {"Action": CLIENT[1:]}, "problem", f"it does not allow everybody {CLIENT[0]}"),
        ([TLS_ONLY], "problem", "it does not allow everybody"),
        (EVERYBODY | {"Principal": {"AWS": ROLE}}, "problem", "refuses mounts without IAM"),
        (EVERYBODY | {"Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}, "problem", "it does not allow"),
        ([EVERYBODY, deny(Condition={"StringNotLike": {"aws:PrincipalArn": ROLE}})], "problem", "statement Ours"),
        ([EVERYBODY, deny(Condition={"Null": {CLIENT_ACCESS_POINT: "true"}})], "problem", "statement Ours"),
        ([EVERYBODY, deny(Principal={"AWS": ROLE})], "ok", ""),
        ([EVERYBODY, deny(Condition={"Bool": {"elasticfilesystem:AccessedViaMountTarget": False}})], "ok", ""),
        (EVERYBODY | {"Action": CLIENT[0]}, "warning", "lets the nodes read only"),
    ],
)  # fmt: skip
def test_policy_must_let_nodes_mount_without_iam(
    account_with_own_vpc: Account, policy: Any, level: str, message: str
) -> None:
    described(account_with_own_vpc, policy)
    account_with_own_vpc.answers("efs", "describe_mount_targets", {"MountTargets": []})
    found = account_with_own_vpc.finds(check_shared_storage)
    assert found.level == level
    assert message in found.sentence
    if level == "problem":
        assert ("remove statement Ours, and " in found.fix) == ("Ours" in found.sentence)
        assert f'allow Principal "*" {CLIENT[0]} and {CLIENT[1]}' in found.fix


def test_policy_that_cannot_be_read_is_a_warning(account_with_own_vpc: Account) -> None:
    account_with_own_vpc.answers("efs", "describe_file_systems", {"FileSystems": [system()]})
    account_with_own_vpc.refuses("efs", "describe_file_system_policy", "AccessDeniedException")
    account_with_own_vpc.answers("efs", "describe_mount_targets", {"MountTargets": []})
    found = account_with_own_vpc.finds(check_shared_storage)
    assert found.level == "warning"
    assert f"could not read the policy of {ID} (AccessDeniedException)" in found.sentence


def test_one_zone_storage_of_another_zone_is_reported(account_with_own_vpc: Account) -> None:
    described(account_with_own_vpc, AvailabilityZoneName="eu-west-1c")
    account_with_own_vpc.answers("efs", "describe_mount_targets", {"MountTargets": []})
    found = account_with_own_vpc.finds(check_shared_storage)
    assert (found.level, found.fix) == ("problem", "-c availability_zone=eu-west-1c, or choose a Regional file system")
    assert found.sentence == f"{ID} is One Zone storage in eu-west-1c, and the cluster's zone is eu-west-1b"


def test_fix_for_one_zone_storage_names_its_zone(account_with_existing_vpc: Account) -> None:
    described(account_with_existing_vpc, AvailabilityZoneName="eu-west-1c")
    account_with_existing_vpc.answers(
        "efs", "describe_mount_targets", {"MountTargets": [mount_target(zone="eu-west-1c")]}
    )
    account_with_existing_vpc.answers(
        "ec2", "describe_subnets", {"Subnets": [{"AvailabilityZone": ZONE, "CidrBlock": BLOCK}]}
    )
    assert account_with_existing_vpc.finds(check_shared_storage).fix.startswith("choose a subnet_id in eu-west-1c")


ENI, MASTER_BLOCK = "eni-01234567", "10.0.2.0/24"


def rule(first: int, last: int, *cidrs: str) -> dict[str, Any]:
    ranges = [{"CidrIp": cidr} for cidr in cidrs]
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "IpRanges": ranges}


@pytest.fixture
def lustre(account_with_existing_vpc: Account) -> Account:
    """Return a cluster with two subnets, and a Lustre file system in their VPC."""
    account_with_existing_vpc.settings |= {"shared_storage": f"lustre:{ID}", "master_subnet_id": "subnet-0000000a"}
    system = {"FileSystemType": "LUSTRE", "Lifecycle": "AVAILABLE", "VpcId": VPC, "NetworkInterfaceIds": [ENI]}
    account_with_existing_vpc.answers("fsx", "describe_file_systems", {"FileSystems": [system]})
    groups = [{"GroupId": GROUP}, {"GroupId": "sg-2"}]
    account_with_existing_vpc.answers("ec2", "describe_network_interfaces", {"NetworkInterfaces": [{"Groups": groups}]})
    subnets = [{"AvailabilityZone": ZONE, "CidrBlock": block} for block in (BLOCK, MASTER_BLOCK)]
    account_with_existing_vpc.answers("ec2", "describe_subnets", {"Subnets": subnets})
    return account_with_existing_vpc


def allow_ports(account: Account, ingress: list[dict[str, Any]], egress: list[dict[str, Any]]) -> None:
    groups = [{"IpPermissions": [permission], "IpPermissionsEgress": egress} for permission in ingress]
    account.answers("ec2", "describe_security_groups", {"SecurityGroups": groups})


def test_lustre_with_all_ports_open_passes(lustre: Account) -> None:
    both = (BLOCK, MASTER_BLOCK)
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    allow_ports(lustre, [rule(988, 988, *both), rule(1018, 1023, *both)], [everything])
    assert lustre.finds(check_shared_storage).level == "ok"


def test_all_ports_blocks_and_groups_of_lustre_are_reported(lustre: Account) -> None:
    allow_ports(
        lustre, [rule(988, 988, BLOCK), rule(1018, 1022, BLOCK, MASTER_BLOCK)], [rule(988, 1023, "10.0.0.0/16")]
    )
    found = lustre.finds(check_shared_storage)
    message = f"({GROUP}, sg-2) lets port 988 and 1018 to 1023 in from {BLOCK} and {MASTER_BLOCK}"
    assert found.sentence == f"no security group of {ID} {message}"
    assert found.fix == (
        f"aws ec2 authorize-security-group-ingress --region eu-west-1 --group-id {GROUP} --ip-permissions "
        f"'IpProtocol=tcp,FromPort=988,ToPort=988,IpRanges=[{{CidrIp={MASTER_BLOCK}}}]' "
        f"'IpProtocol=tcp,FromPort=1018,ToPort=1023,IpRanges=[{{CidrIp={BLOCK}}},{{CidrIp={MASTER_BLOCK}}}]'"
    )


def test_lustre_must_also_reach_the_nodes(lustre: Account) -> None:
    allow_ports(lustre, [rule(900, 1100, "10.0.0.0/16")], [rule(988, 988, "10.0.0.0/16")])
    found = lustre.finds(check_shared_storage)
    assert f"lets port 1018 to 1023 out to {BLOCK} and {MASTER_BLOCK}" in found.sentence
    assert found.fix.startswith("aws ec2 authorize-security-group-egress ")
