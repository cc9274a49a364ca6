"""Test that file systems of templates get their policy, and that the data plane sees mount targets and their faults."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cli.preflight import resource_policy
from cli.preflight.storage.efs import MOUNT, NODE
from local.storage.file_system_policy import admits
from local.storage.mount_targets import StorageFaults, read_mount_targets
from tests.local.control_plane.conftest import aws, stacks  # noqa: F401  (fixtures)
from tests.local.control_plane.harness import Aws, Stacks, wait_for_server
from tests.local.control_plane.templates import network, reference, resource
from tests.local.storage.policies import (
    ARN,
    BY_MOUNT_TARGET,
    CLIENT,
    EVERYBODY,
    NO_PLAINTEXT,
    OF_ONE_ROLE,
    TLS_ONLY,
    allow,
    policy,
)

ACCESS_POINT = {"StringEquals": {"elasticfilesystem:AccessPointArn": f"{ARN}/access-point/fsap-1"}}


def template(*, mount_target: bool, **properties: Any) -> dict[str, Any]:
    kept = {"DeletionPolicy": "Retain"}
    settings: dict[str, Any] = {"Encrypted": True, "FileSystemPolicy": TLS_ONLY} | properties
    parts: dict[str, Any] = {
        **network(),
        "System": resource("EFS::FileSystem", **settings) | kept,
        "Group": resource("EC2::SecurityGroup", GroupDescription="NFS", VpcId=reference("Vpc")),
    }
    target = resource(
        "EFS::MountTarget",
        FileSystemId=reference("System"),
        SubnetId=reference("Private"),
        SecurityGroups=[reference("Group")],
    )
    return {"Resources": parts | ({"Target": target} if mount_target else {})}


def test_mount_target_is_seen_while_it_is_there(aws: Aws, stacks: Stacks) -> None:  # noqa: F811
    efs, fsx, ec2 = (aws.client(service) for service in ("efs", "fsx", "ec2"))
    stacks.create(template(mount_target=True))
    [target] = read_mount_targets(efs, fsx, ec2, faults=StorageFaults(slow_s=2.0))
    system = stacks.physical_id("System")
    assert (target.file_system, target.host) == (system, f"{system}.efs.us-east-1.amazonaws.com")
    assert target.address.startswith("10.0.1.")
    assert (target.admits_tls, target.admits_plaintext, target.slow_s) == (True, False, 2.0)
    assert read_mount_targets(efs, fsx, ec2, faults=StorageFaults(absent=True)) == ()
    stacks.update(template(mount_target=False))
    assert read_mount_targets(efs, fsx, ec2, faults=StorageFaults()) == ()
    stacks.cloudformation.delete_stack(StackName=stacks.names[0])
    assert system in {described["FileSystemId"] for described in efs.describe_file_systems()["FileSystems"]}
    efs.delete_file_system(FileSystemId=system)


@pytest.fixture
def file_system(aws: Aws) -> Iterator[str]:  # noqa: F811
    """Make a file system without a policy, with a mount target, and delete it."""
    efs, ec2 = aws.client("efs"), aws.client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock="10.9.0.0/24")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc_id, CidrBlock="10.9.0.0/28")["Subnet"]["SubnetId"]
    made = str(efs.create_file_system(CreationToken="own")["FileSystemId"])
    [group] = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["SecurityGroups"]
    target = efs.create_mount_target(FileSystemId=made, SubnetId=subnet, SecurityGroups=[group["GroupId"]])
    yield made
    efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    efs.delete_file_system(FileSystemId=made)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc_id)


def test_latest_policy_decides_who_may_mount(aws: Aws, file_system: str) -> None:  # noqa: F811
    efs, fsx, ec2 = (aws.client(service) for service in ("efs", "fsx", "ec2"))

    def admitted() -> tuple[bool, bool]:
        [target] = read_mount_targets(efs, fsx, ec2, faults=StorageFaults())
        return target.admits_tls, target.admits_plaintext

    assert admitted() == (True, True)
    efs.put_file_system_policy(FileSystemId=file_system, Policy=json.dumps(OF_ONE_ROLE))
    assert admitted() == (False, False)
    efs.put_file_system_policy(FileSystemId=file_system, Policy=json.dumps(EVERYBODY))
    assert admitted() == (True, True)
    unknown = policy(allow(Condition={"Bool": {"aws:SecureTransprot": "true"}}))
    with pytest.raises(ClientError, match=r"InvalidPolicyException.* got 'aws:SecureTransprot'"):
        efs.put_file_system_policy(FileSystemId=file_system, Policy=json.dumps(unknown))
    assert admitted() == (True, True)


@pytest.mark.parametrize(
    ("document", "with_tls", "without_tls"),
    [
        (EVERYBODY, True, True),
        (TLS_ONLY, True, False),
        (OF_ONE_ROLE, False, False),
        # The policy of the CDK's FileSystem, and of "Prevent anonymous access" in EFS's console.
        (policy(allow(actions=CLIENT[1:], Condition=BY_MOUNT_TARGET)), False, False),
        (policy(NO_PLAINTEXT), False, False),
        (policy(allow(Condition=ACCESS_POINT)), False, False),
        (policy(allow(), {**NO_PLAINTEXT, "Condition": BY_MOUNT_TARGET}), False, False),
        (policy(allow(actions="elasticfilesystem:*", Resource=ARN)), True, True),
    ],
)
def test_anonymous_clients_mount_if_a_statement_for_everybody_lets_them(
    document: dict[str, Any], with_tls: bool, without_tls: bool
) -> None:
    assert (admits(document, ARN, encrypted=True), admits(document, ARN, encrypted=False)) == (with_tls, without_tls)
    # Preflight, which has an evaluator of its own, says the same of the nodes.
    assert resource_policy.allows(document, MOUNT, NODE) is with_tls


def test_policy_about_another_file_system_admits_nobody() -> None:
    assert not admits(policy(allow(Resource=f"{ARN}4")), ARN, encrypted=True)


def test_update_changes_tags_and_policy_and_nothing_else(aws: Aws, stacks: Stacks) -> None:  # noqa: F811
    efs = aws.client("efs")
    stacks.create(template(mount_target=False, FileSystemTags=[{"Key": "team", "Value": "vision"}]))
    system = stacks.physical_id("System")
    changes = {"FileSystemTags": [{"Key": "owner", "Value": "me"}], "FileSystemPolicy": EVERYBODY}
    stacks.update(template(mount_target=False, **changes))
    assert (stacks.status(), stacks.physical_id("System")) == ("UPDATE_COMPLETE", system)
    [description] = efs.describe_file_systems(FileSystemId=system)["FileSystems"]
    assert description["Tags"] == changes["FileSystemTags"]
    assert json.loads(efs.describe_file_system_policy(FileSystemId=system)["Policy"]) == EVERYBODY
    stacks.update(template(mount_target=False, **changes, Encrypted=False))
    wait_for_server(lambda: stacks.status() == "UPDATE_ROLLBACK_COMPLETE", "the rollback")
    refusal = "the local AWS cannot change Encrypted of a file system"
    assert any(refusal in reason for _, reason in stacks.events("System"))
    stacks.cloudformation.delete_stack(StackName=stacks.names[0])
    efs.delete_file_system(FileSystemId=system)


def test_storage_faults_are_those_written_last(tmp_path: Path) -> None:
    assert StorageFaults.read(tmp_path) == StorageFaults()
    StorageFaults(absent=True).write(tmp_path)
    assert StorageFaults.read(tmp_path) == StorageFaults(absent=True)
    StorageFaults().write(tmp_path)
    assert StorageFaults.read(tmp_path) == StorageFaults()
    assert json.loads((tmp_path / "storage-faults.json").read_text()) == {"absent": False, "slow_s": 0.0}
