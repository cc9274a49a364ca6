"""Test that file systems of templates get their policy, and that the data plane sees mount targets and their faults."""

import json
from pathlib import Path
from typing import Any

from local.storage.mount_targets import StorageFaults, denies_plaintext, read_mount_targets
from tests.local.aws.conftest import aws, stacks  # noqa: F401  (fixtures)
from tests.local.aws.harness import Aws, Stacks, await_server
from tests.local.aws.templates import network, reference, resource

TLS_ONLY = {"Statement": [{"Effect": "Deny", "Action": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}


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


def test_a_mount_target_is_seen_while_it_is_there(aws: Aws, stacks: Stacks) -> None:  # noqa: F811
    efs, fsx, ec2 = (aws.client(service) for service in ("efs", "fsx", "ec2"))
    stacks.create(template(mount_target=True))
    [found] = read_mount_targets(efs, fsx, ec2, faults=StorageFaults(slow_s=2.0))
    system = stacks.physical_id("System")
    assert (found.file_system, found.host) == (system, f"{system}.efs.us-east-1.amazonaws.com")
    assert found.address.startswith("10.0.1.")
    assert (found.refuses_plaintext, found.slow_s) == (True, 2.0)
    assert read_mount_targets(efs, fsx, ec2, faults=StorageFaults(absent=True)) == ()
    stacks.update(template(mount_target=False))
    assert read_mount_targets(efs, fsx, ec2, faults=StorageFaults()) == ()
    stacks.cloudformation.delete_stack(StackName=stacks.names[0])
    assert system in {each["FileSystemId"] for each in efs.describe_file_systems()["FileSystems"]}
    efs.delete_file_system(FileSystemId=system)


def test_an_update_changes_tags_and_policy_and_nothing_else(aws: Aws, stacks: Stacks) -> None:  # noqa: F811
    efs = aws.client("efs")
    stacks.create(template(mount_target=False, FileSystemTags=[{"Key": "team", "Value": "vision"}]))
    system = stacks.physical_id("System")
    open_to_all: dict[str, Any] = {"Statement": []}
    changes = {"FileSystemTags": [{"Key": "owner", "Value": "me"}], "FileSystemPolicy": open_to_all}
    stacks.update(template(mount_target=False, **changes))
    assert (stacks.status(), stacks.physical_id("System")) == ("UPDATE_COMPLETE", system)
    [found] = efs.describe_file_systems(FileSystemId=system)["FileSystems"]
    assert found["Tags"] == changes["FileSystemTags"]
    assert json.loads(efs.describe_file_system_policy(FileSystemId=system)["Policy"]) == open_to_all
    stacks.update(template(mount_target=False, **changes, Encrypted=False))
    await_server(lambda: stacks.status() == "UPDATE_ROLLBACK_COMPLETE", "the rollback")
    refusal = "the local AWS cannot change Encrypted of a file system"
    assert any(refusal in reason for _, reason in stacks.events("System"))
    stacks.cloudformation.delete_stack(StackName=stacks.names[0])
    efs.delete_file_system(FileSystemId=system)


def test_a_policy_that_requires_tls_is_distinguished() -> None:
    assert denies_plaintext(TLS_ONLY)
    assert not denies_plaintext({})
    assert not denies_plaintext({"Statement": [{**TLS_ONLY["Statement"][0], "Effect": "Allow"}]})


def test_storage_faults_are_those_written_last(tmp_path: Path) -> None:
    assert StorageFaults.read(tmp_path) == StorageFaults()
    StorageFaults(absent=True).write(tmp_path)
    assert StorageFaults.read(tmp_path) == StorageFaults(absent=True)
    StorageFaults().write(tmp_path)
    assert StorageFaults.read(tmp_path) == StorageFaults()
    assert json.loads((tmp_path / "storage-faults.json").read_text()) == {"absent": False, "slow_s": 0.0}
