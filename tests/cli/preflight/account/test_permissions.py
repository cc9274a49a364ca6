"""Test the check that the caller and CloudFormation may deploy."""

from typing import Any

import pytest

from cli.preflight.account import permissions
from tests.cli.preflight.account.policies import EXECUTOR, simulates
from tests.cli.preflight.stubbed_account import ACCOUNT, CALLER, NEW_STACK, Account

DEPLOY_ROLE = f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-deploy-role-{ACCOUNT}-eu-west-1"


def desired_nodes(caller: str) -> dict[str, Any]:
    return {"PolicySourceArn": caller, "ActionNames": ["sts:AssumeRole"], "ResourceArns": [DEPLOY_ROLE]}


@pytest.mark.parametrize(
    ("decision", "level"), [("allowed", "ok"), ("implicitDeny", "warning"), ("explicitDeny", "warning")]
)
def test_caller_must_become_the_role_that_deploys(account: Account, decision: str, level: str) -> None:
    simulates(account, desired_nodes(CALLER), {"sts:AssumeRole": decision})
    found = account.finds(permissions.check_deploy_permission)
    assert found.level == level
    assert CALLER in found.sentence


def test_session_is_checked_as_its_role(account: Account) -> None:
    account.caller = f"arn:aws:sts::{ACCOUNT}:assumed-role/Team/ann@example.org"
    role = f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso/Team"
    described = {
        "Path": "/", "RoleName": "Team", "RoleId": "AROA0123456789ABCDEF", "Arn": role,
        "CreateDate": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    account.answers("iam", "get_role", {"Role": described}, {"RoleName": "Team"})
    simulates(account, desired_nodes(role), {"sts:AssumeRole": "allowed"})
    assert account.finds(permissions.check_deploy_permission).level == "ok"


def test_root_user_cannot_be_simulated(account: Account) -> None:
    account.caller = f"arn:aws:iam::{ACCOUNT}:root"
    found = account.finds(permissions.check_deploy_permission)
    assert (found.level, found.sentence[:16]) == ("warning", "could not check:")


def test_cloudformation_may_create_roles(account: Account) -> None:
    expected = {
        "PolicySourceArn": EXECUTOR,
        "ActionNames": ["iam:CreateRole", "iam:PutRolePolicy"],
        "ResourceArns": [f"arn:aws:iam::{ACCOUNT}:role/demo-ClusterRoles"],
    }
    simulates(account, expected, {"iam:CreateRole": "allowed"}, {"iam:PutRolePolicy": "allowed"})
    assert account.finds(permissions.check_role_permissions).level == "ok"


def test_roles_are_simulated_with_boundary_and_managed_policies(account: Account) -> None:
    key = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    account.settings.update(hardened=True, private=True, flow_logs=True, kms_key=key, permissions_boundary="limit")
    boundary = {"ContextKeyName": "iam:PermissionsBoundary", "ContextKeyType": "string"}
    on_role = {
        "PolicySourceArn": EXECUTOR,
        "ActionNames": ["iam:CreateRole", "iam:AttachRolePolicy"],
        "ResourceArns": [f"arn:aws:iam::{ACCOUNT}:role/demo-ClusterRoles"],
        "ContextEntries": [{**boundary, "ContextKeyValues": [f"arn:aws:iam::{ACCOUNT}:policy/limit"]}],
    }
    actions = ["iam:CreatePolicy", "iam:CreatePolicyVersion", "iam:DeletePolicy"]
    on_policy = {
        "PolicySourceArn": EXECUTOR,
        "ActionNames": actions,
        "ResourceArns": [f"arn:aws:iam::{ACCOUNT}:policy/demo-ClusterRoles"],
    }
    simulates(account, on_role, dict.fromkeys(["iam:CreateRole", "iam:AttachRolePolicy"], "allowed"))
    simulates(account, on_policy, {**dict.fromkeys(actions, "allowed"), "iam:DeletePolicy": "implicitDeny"})
    roles, policies = account.check(permissions.check_role_permissions)
    assert (roles.level, policies.level) == ("ok", "problem")
    assert policies.sentence.endswith("may not iam:DeletePolicy")


SCHEDULES = ("scheduler:CreateSchedule", "scheduler:GetSchedule", "scheduler:DeleteSchedule")


@pytest.mark.parametrize("denied", ["", "scheduler:DeleteSchedule", "iam:PassRole"])
def test_cloudformation_may_schedule_the_end(account: Account, denied: str) -> None:
    account.settings["expires"] = "2999-12-01T18:00:00Z"
    decisions = {name: "explicitDeny" if name == denied else "allowed" for name in (*SCHEDULES, "iam:PassRole")}
    on_schedule = {
        "PolicySourceArn": EXECUTOR,
        "ActionNames": [*SCHEDULES],
        "ResourceArns": [f"arn:aws:scheduler:eu-west-1:{ACCOUNT}:schedule/default/demo-ClusterExpiry"],
    }
    service = {"ContextKeyName": "iam:PassedToService", "ContextKeyType": "string"}
    on_role = {
        "PolicySourceArn": EXECUTOR,
        "ActionNames": ["iam:PassRole"],
        "ResourceArns": [f"arn:aws:iam::{ACCOUNT}:role/demo-ClusterExpiryRole"],
        "ContextEntries": [{**service, "ContextKeyValues": ["scheduler.amazonaws.com"]}],
    }
    simulates(account, on_schedule, {name: decisions[name] for name in SCHEDULES})
    simulates(account, on_role, {"iam:PassRole": decisions["iam:PassRole"]})
    found = account.check(permissions.check_schedule_permissions)
    assert [finding.level == "problem" for finding in found] == [denied in SCHEDULES, denied == "iam:PassRole"]
    assert all(finding.sentence.endswith(f"may not {denied}") for finding in found if finding.level == "problem")


def test_cluster_without_an_end_needs_no_schedules(account: Account) -> None:
    assert account.check(permissions.check_schedule_permissions) == []


def test_cloudformation_without_the_right_to_create_roles_is_a_problem(account: Account) -> None:
    account.cdk_context["@aws-cdk/core:bootstrapQualifier"] = "team"
    expected = {
        "PolicySourceArn": EXECUTOR.replace("hnb659fds", "team"),
        "ActionNames": ["iam:CreateRole", "iam:PutRolePolicy"],
        "ResourceArns": [f"arn:aws:iam::{ACCOUNT}:role/demo-ClusterRoles"],
    }
    simulates(account, expected, {"iam:CreateRole": "allowed"}, {"iam:PutRolePolicy": "explicitDeny"})
    found = account.finds(permissions.check_role_permissions)
    assert found.level == "problem"
    assert found.sentence.endswith("may not iam:PutRolePolicy")
    assert "--cloudformation-execution-policies" in found.fix


FILE_SYSTEMS = f"arn:aws:elasticfilesystem:eu-west-1:{ACCOUNT}:file-system"


@pytest.mark.parametrize(
    ("setting", "resource", "creates_file_system"),
    [("efs", "fs-0123456789abcdef0", True), ("efs:fs-01234567", "fs-01234567", False)],
)
def test_cloudformation_must_make_the_shared_storage(
    account: Account, setting: str, resource: str, creates_file_system: bool
) -> None:
    account.settings["shared_storage"] = setting
    actions = permissions.FILE_SYSTEM_ACTIONS if creates_file_system else ()
    expected = {
        "PolicySourceArn": EXECUTOR,
        "ActionNames": [*actions, *permissions.MOUNT_TARGET_ACTIONS],
        "ResourceArns": [f"{FILE_SYSTEMS}/{resource}"],
    }
    simulates(account, expected, {"elasticfilesystem:CreateMountTarget": "implicitDeny"})
    found = account.finds(permissions.check_storage_permissions)
    assert found.level == "problem"
    assert found.sentence.endswith("may not elasticfilesystem:CreateMountTarget")


@pytest.mark.parametrize("setting", ["none", "lustre:fs-01234567"])
def test_storage_that_the_stack_does_not_make_needs_no_permissions(account: Account, setting: str) -> None:
    account.settings |= {"shared_storage": setting, "vpc_id": "vpc-01234567", "subnet_id": "subnet-01234567"}
    del account.settings["availability_zone"]
    assert account.check(permissions.check_storage_permissions) == []


@pytest.mark.parametrize(
    ("launch", "put", "deployed", "level"),
    [
        ("allowed", "allowed", "demo-ClusterTable0A1B-XYZ", "ok"),
        ("implicitDeny", "allowed", "demo-ClusterTable0A1B-XYZ", "problem"),
        ("allowed", "implicitDeny", "demo-ClusterTable0A1B-XYZ", "problem"),
        ("implicitDeny", "implicitDeny", "", "problem"),
        ("allowed", "implicitDeny", "", "warning"),
        ("allowed", "allowed", "", "ok"),
    ],
)
def test_candidate_zones_need_launch_and_lock_permissions(
    account: Account, launch: str, put: str, deployed: str, level: str
) -> None:
    """Before the first deploy nobody knows the table's name, which a policy may already allow."""
    if deployed:
        outputs = [{"OutputKey": "ClusterTable", "OutputValue": deployed}]
        made: dict[str, Any] = {"StackName": "demo", "CreationTime": "2026-01-01T00:00:00Z", "Outputs": outputs}
        made["StackStatus"] = "CREATE_COMPLETE"
        account.answers("cloudformation", "describe_stacks", {"Stacks": [made]}, {"StackName": "demo"})
    else:
        account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    account.settings |= {"zones": ["eu-west-1a", "eu-west-1b"]}
    group = f"arn:aws:autoscaling:eu-west-1:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/demo-worker"
    expected = {"PolicySourceArn": CALLER, "ActionNames": [*permissions.UP_ACTIONS], "ResourceArns": [group]}
    simulates(account, expected, {"autoscaling:LaunchInstances": launch})
    table = f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/{deployed or 'demo-Cluster'}"
    expected = {**expected, "ActionNames": [*permissions.UP_RECORD_ACTIONS], "ResourceArns": [table]}
    simulates(account, expected, {"dynamodb:PutItem": put})
    assert account.finds(permissions.check_launch_permissions).level == level
