"""Test the file system that nodes share: no node waits for it, only nodes reach it, and it outlives the stack."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from local.control_plane.cloudformation.dependencies import dependencies
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.template_parts import Template, logical_id, resources

Synthesize = Callable[..., Template]
ID = "fs-0123456789abcdef0"


@pytest.fixture(scope="module")
def storage_template(synthesize: Synthesize) -> Template:
    return synthesize(worker_count=2, shared_storage="efs")


def needed(template: Template, name: str) -> set[str]:
    """Return every resource that CloudFormation creates before this one."""
    direct = dependencies(template["Resources"])
    found: set[str] = set()
    left = [name]
    while left:
        for other in direct[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def test_nodes_neither_wait_for_it_nor_fail_with_it(storage_template: Template) -> None:
    for group in ("Master", "Workers"):
        waits_for = needed(storage_template, logical_id(storage_template, "AWS::AutoScaling::AutoScalingGroup", group))
        kinds = {storage_template["Resources"][name]["Type"] for name in waits_for}
        assert "AWS::EC2::LaunchTemplate" in kinds
        assert not any(kind.startswith("AWS::EFS::") for kind in kinds)


def test_shared_storage_is_encrypted_requires_tls_and_is_retained(storage_template: Template) -> None:
    [system] = resources(storage_template, "AWS::EFS::FileSystem")
    assert system["Properties"]["Encrypted"] is True
    assert (system["DeletionPolicy"], system["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    [allow, deny] = system["Properties"]["FileSystemPolicy"]["Statement"]
    by_mount_target = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
    assert (allow["Effect"], allow["Condition"]) == ("Allow", by_mount_target)
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    tags = {tag["Key"]: tag["Value"] for tag in system["Properties"]["FileSystemTags"]}
    assert tags["deeplearning:cluster"] == "deeplearning"
    [target] = resources(storage_template, "AWS::EFS::MountTarget")
    assert "DeletionPolicy" not in target
    assert storage_template["Outputs"]["SharedStorage"]["Value"] == target["Properties"]["FileSystemId"]


def test_only_nodes_reach_its_port(storage_template: Template) -> None:
    access = logical_id(storage_template, "AWS::EC2::SecurityGroup", "SharedStorageAccess")
    assert "SecurityGroupIngress" not in storage_template["Resources"][access]["Properties"]
    rules = [
        rule["Properties"]
        for rule in resources(storage_template, "AWS::EC2::SecurityGroupIngress")
        if rule["Properties"]["GroupId"]["Fn::GetAtt"][0] == access
    ]
    assert {(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules} == {("tcp", 2049, 2049)}
    nodes = {
        logical_id(storage_template, "AWS::EC2::SecurityGroup", f"Security{name}") for name in ("Master", "Worker")
    }
    assert {rule["SourceSecurityGroupId"]["Fn::GetAtt"][0] for rule in rules} == nodes


def test_master_alone_may_ask_its_own_stack_for_the_id(storage_template: Template) -> None:
    asking = []
    for policy in resources(storage_template, "AWS::IAM::Policy"):
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            if "cloudformation:DescribeStackResource" in statement["Action"]:
                asking.append((policy["Properties"]["Roles"], statement["Resource"]))
    [(roles, resource)] = asking
    assert "Master" in json.dumps(roles)
    assert resource == {"Ref": "AWS::StackId"}


def test_file_system_that_exists_gets_a_mount_target_and_nothing_else(synthesize: Synthesize) -> None:
    template = synthesize(shared_storage=f"efs:{ID}")
    assert resources(template, "AWS::EFS::FileSystem") == []
    [target] = resources(template, "AWS::EFS::MountTarget")
    assert target["Properties"]["FileSystemId"] == template["Outputs"]["SharedStorage"]["Value"] == ID


def test_no_resources_without_shared_storage(template: Template) -> None:
    assert not any(part["Type"].startswith("AWS::EFS::") for part in template["Resources"].values())
    assert "SharedStorage" not in template["Outputs"]


@pytest.mark.parametrize("value", ["EFS", "efs:", "efs:fs-1", f"efs:{ID}0", f"nfs:{ID}", f"efs:{ID} ", "lustre"])
def test_value_that_names_no_storage_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="shared_storage must be none, efs, efs:fs-ID or lustre:fs-ID, got"):
        ClusterProps(shared_storage=value)


def test_lustre_without_a_vpc_is_refused() -> None:
    with pytest.raises(SettingsError, match="vpc_id must be set for Lustre"):
        ClusterProps(shared_storage=f"lustre:{ID}")


def test_warning_says_that_destroy_keeps_the_file_system() -> None:
    warnings: dict[str, Any] = ClusterProps(shared_storage="efs").warnings()
    assert "cdk destroy keeps" in warnings["file-system-kept"]
    assert "file-system-kept" not in ClusterProps(shared_storage=f"efs:{ID}").warnings()
