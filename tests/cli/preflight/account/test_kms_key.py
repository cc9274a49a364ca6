"""Test the check of the KMS key with which the cluster encrypts."""

import json
from typing import Any

import pytest

from cli.preflight.account import permissions
from cli.preflight.account.kms_key import check_kms_key
from cli.preflight.account.volume_key import check_volume_key
from tests.cli.preflight.account.policies import EXECUTOR, GRANT, KEY, OWNER, ROLE, USE, has_policy, simulates
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

GROUPS = f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:demo-*"
LOGS: dict[str, Any] = {
    "Effect": "Allow", "Principal": {"Service": "logs.eu-west-1.amazonaws.com"}, "Resource": "*",
    "Action": ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
    "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": GROUPS}},
}  # fmt: skip


@pytest.fixture
def with_key(account: Account) -> Account:
    account.settings["kms_key"] = KEY
    return account


def has_key(account: Account, *statements: dict[str, Any], **described: str) -> None:
    account.answers("kms", "describe_key", {"KeyMetadata": {"KeyId": KEY, "Arn": KEY, **described}}, {"KeyId": KEY})
    if statements:
        has_policy(account, *statements)


def cloudformation_may(account: Account, decision: str = "allowed") -> None:
    asked = {"PolicySourceArn": EXECUTOR, "ActionNames": [*permissions.KEY_ACTIONS], "ResourceArns": [KEY]}
    simulates(account, asked, dict.fromkeys(permissions.KEY_ACTIONS, decision))


def test_key_with_the_statements_of_awss_guides_is_fine(with_key: Account) -> None:
    has_key(with_key, OWNER, USE, GRANT, LOGS)
    cloudformation_may(with_key)
    assert [found.level for found in with_key.check(check_kms_key)] == ["ok", "ok"]


def test_kms_key_is_described_only_if_it_is_set_and_not_the_default(account: Account) -> None:
    assert account.check(check_kms_key) == []
    account.settings["kms_key"] = KEY
    assert account.check(check_volume_key) == []


@pytest.mark.parametrize(
    ("lacking", "message", "missing"),
    [
        (USE, f"does not let {ROLE} use it", {**USE, "Principal": {"AWS": ROLE}}),
        (LOGS, "does not let logs.eu-west-1.amazonaws.com use it", LOGS),
        (OWNER, "does not let the account's roles", {**OWNER, "Action": ["kms:*"]}),
    ],
)
def test_missing_statement_is_a_problem_and_is_printed(
    with_key: Account, lacking: dict[str, Any], message: str, missing: dict[str, Any]
) -> None:
    has_key(with_key, *(statement for statement in (OWNER, USE, GRANT, LOGS) if statement is not lacking))
    if lacking is USE:
        asked = {"KeyId": KEY, "GranteePrincipal": ROLE}
        with_key.answers("kms", "list_grants", {"Grants": []}, asked)
    cloudformation_may(with_key)
    found, allowed = with_key.check(check_kms_key)
    assert (found.level, allowed.level) == ("problem", "ok")
    assert message in found.sentence
    assert json.loads(found.fix.removeprefix("add to its policy: ")) == missing


def test_key_for_another_clusters_logs_alone_is_a_problem(with_key: Account) -> None:
    other = json.loads(json.dumps(LOGS).replace("log-group:demo-", "log-group:other-"))
    has_key(with_key, OWNER, USE, GRANT, other)
    cloudformation_may(with_key)
    assert with_key.check(check_kms_key)[0].level == "problem"


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"KeyState": "PendingDeletion"}, f"{KEY} is PendingDeletion"),
        ({"KeySpec": "RSA_2048"}, f"{KEY} is RSA_2048: disks and logs take only symmetric keys"),
    ],
)
def test_key_that_cannot_encrypt_is_a_problem(with_key: Account, described: dict[str, str], message: str) -> None:
    has_key(with_key, **described)
    found = with_key.finds(check_kms_key)
    assert (found.level, found.sentence) == ("problem", message)


def test_missing_or_foreign_key_is_reported(with_key: Account) -> None:
    with_key.refuses("kms", "describe_key", "NotFoundException")
    assert with_key.finds(check_kms_key).sentence == f"there is no {KEY}"
    with_key.settings["kms_key"] = KEY.replace(ACCOUNT, "210987654321")
    found = with_key.finds(check_kms_key)
    assert (found.level, found.fix) == ("problem", f"choose a key of account {ACCOUNT}")


def test_cloudformation_without_the_right_to_encrypt_is_a_problem(with_key: Account) -> None:
    has_key(with_key, OWNER, USE, GRANT, LOGS)
    cloudformation_may(with_key, "implicitDeny")
    assert with_key.check(check_kms_key)[1].level == "problem"


def test_missing_boundary_is_a_problem(account: Account) -> None:
    account.settings["permissions_boundary"] = "limit"
    arn = f"arn:aws:iam::{ACCOUNT}:policy/limit"
    account.answers("iam", "get_policy", {"Policy": {"Arn": arn}}, {"PolicyArn": arn})
    assert account.finds(permissions.check_boundary).level == "ok"
    account.refuses("iam", "get_policy", "NoSuchEntity", {"PolicyArn": arn})
    assert account.finds(permissions.check_boundary).sentence == f"there is no policy {arn}"
