"""Test the checks of a stack that exists, and of its deletion at the end."""

from typing import Any

import pytest

from cli.preflight.stack import check_expiry_deletion, check_stack
from tests.cli.preflight.stubbed_account import NEW_STACK, Account

KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
CLUSTER = [{"OutputKey": "ClusterName", "OutputValue": "demo"}]


def is_in(account: Account, status: str, outputs: list[dict[str, str]]) -> None:
    described: dict[str, Any] = {
        "StackName": "demo",
        "CreationTime": "2026-01-01T00:00:00Z",
        "StackStatus": status,
        "Outputs": outputs,
    }
    account.answers("cloudformation", "describe_stacks", {"Stacks": [described]}, {"StackName": "demo"})


def test_check_passes_without_a_stack_of_that_name(account: Account) -> None:
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    assert account.finds(check_stack).level == "ok"


@pytest.mark.parametrize(
    ("status", "level", "fix"),
    [
        ("CREATE_COMPLETE", "ok", ""),
        ("UPDATE_ROLLBACK_COMPLETE", "ok", ""),
        ("REVIEW_IN_PROGRESS", "ok", ""),
        ("ROLLBACK_COMPLETE", "warning", "see dlcluster why; cdk deploy removes it first"),
        ("ROLLBACK_FAILED", "warning", "see dlcluster why; cdk deploy removes it first"),
        ("CREATE_FAILED", "problem", "cdk deploy --no-rollback goes on with it, cdk destroy removes it"),
        (
            "UPDATE_FAILED",
            "problem",
            "cdk deploy --no-rollback goes on with it, cdk rollback returns to the former settings",
        ),
        ("UPDATE_ROLLBACK_FAILED", "problem", "names what is in the way; remove that, then cdk rollback"),
        ("DELETE_FAILED", "problem", "names what is in the way; remove that, then cdk destroy"),
        ("DELETE_IN_PROGRESS", "problem", "wait until it has finished"),
    ],
)
def test_stack_that_blocks_a_deploy_is_named_with_a_fix(account: Account, status: str, level: str, fix: str) -> None:
    is_in(account, status, CLUSTER)
    found = account.finds(check_stack)
    assert found.level == level
    assert found.fix.endswith(fix)
    assert f"stack demo is {status}" in found.sentence


def test_foreign_stack_of_the_same_name_is_a_problem(account: Account) -> None:
    is_in(account, "CREATE_COMPLETE", [])
    found = account.finds(check_stack)
    assert (found.level, found.fix) == ("problem", "choose another cluster_name")


@pytest.mark.parametrize(
    ("outputs", "settings", "message"),
    [
        ({}, {"private": True, "key_name": "mine"}, "private of a running cluster cannot change, got true"),
        ({"ClusterPrivate": "true"}, {}, "private of a running cluster cannot change, got false"),
        ({}, {"shared_storage": "efs"}, "shared_storage of a running cluster cannot change, got efs"),
        ({}, {"role_name_prefix": "t-"}, "role_name_prefix of a running cluster cannot change, got t-"),
        (
            {"SharedStorage": "fs-1", "ClusterKey": KEY.replace("1234", "4321")},
            {"shared_storage": "efs", "kms_key": KEY},
            f"kms_key of a running cluster cannot change, got {KEY}",
        ),
    ],
)  # fmt: skip
def test_setting_missing_in_an_older_stack_is_off(
    account: Account, outputs: dict[str, str], settings: dict[str, Any], message: str
) -> None:
    account.settings |= settings
    more = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]
    is_in(account, "UPDATE_COMPLETE", [*CLUSTER, *more])
    found = account.finds(check_stack)
    assert found.level == "problem"
    assert found.sentence.startswith(message)


EXECUTOR = {"RoleName": "cdk-hnb659fds-cfn-exec-role-123456789012-eu-west-1"}


def expires(account: Account, *, protected: bool) -> None:
    account.settings |= {"expires": "2999-12-01T18:00:00Z", "expiry_action": "delete"}
    role = {"Path": "/", **EXECUTOR, "RoleId": "AROA0123456789ABCDEF", "Arn": f"arn:aws:iam::1:role/{EXECUTOR}"}
    account.answers("iam", "get_role", {"Role": {**role, "CreateDate": "2026-01-01T00:00:00Z"}}, EXECUTOR)
    described = {"StackName": "demo", "CreationTime": "2026-01-01T00:00:00Z", "StackStatus": "CREATE_COMPLETE"}
    found = {"Stacks": [{**described, "EnableTerminationProtection": protected}]}
    account.answers("cloudformation", "describe_stacks", found, {"StackName": "demo"})


@pytest.mark.parametrize("protected", [False, True])
def test_termination_protection_prevents_the_scheduled_deletion(account: Account, protected: bool) -> None:
    expires(account, protected=protected)
    found = account.finds(check_expiry_deletion)
    if protected:
        assert (found.level, found.sentence) == (
            "problem",
            "stack demo has termination protection: its end cannot delete it",
        )
        assert found.fix.endswith("--stack-name demo --no-enable-termination-protection")
    else:
        assert (found.level, found.sentence) == ("ok", "the stack is deleted from 2999-12-01T18:15:00Z on")


def test_missing_deletion_role_is_reported(account: Account) -> None:
    account.settings |= {"expires": "2999-12-01T18:00:00Z", "expiry_action": "delete"}
    account.refuses("iam", "get_role", "NoSuchEntity", EXECUTOR)
    found = account.finds(check_expiry_deletion)
    assert found.level == "problem"
    assert found.fix == "cdk bootstrap aws://123456789012/eu-west-1"


def test_pause_deletes_no_stack(account: Account) -> None:
    account.settings |= {"expires": "2999-12-01T18:00:00Z"}
    assert account.check(check_expiry_deletion) == []


@pytest.mark.parametrize(
    ("settings", "is_named"),
    [({}, True), ({"kms_key": KEY[:-1] + "c"}, True), ({"data_keys": (KEY,)}, False), ({"kms_key": KEY}, False)],
)
def test_former_key_that_nodes_would_lose_is_named(
    account: Account, settings: dict[str, Any], *, is_named: bool
) -> None:
    account.settings.update(settings)
    is_in(account, "UPDATE_COMPLETE", [*CLUSTER, {"OutputKey": "ClusterKey", "OutputValue": KEY}])
    warned = [found for found in account.check(check_stack) if found.level != "ok"]
    assert [(KEY in found.sentence, found.fix) for found in warned] == [(True, "add it to data_keys")] * is_named
