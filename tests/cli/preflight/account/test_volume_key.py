"""Test the check of the key that encrypts volumes by default."""

from typing import Any

import pytest

from cli.preflight.account.volume_key import check_volume_key
from tests.cli.preflight.account.policies import GRANT, KEY, OWNER, ROLE, USE, has_policy
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

OF_ACCOUNT = {
    "Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["kms:*"], "Resource": "*",
    "Condition": {"StringEquals": {"kms:CallerAccount": ACCOUNT, "kms:ViaService": "ec2.eu-west-1.amazonaws.com"}},
}  # fmt: skip


def has_key(account: Account, **described: str) -> None:
    account.answers("ec2", "get_ebs_default_kms_key_id", {"KmsKeyId": KEY})
    account.answers("kms", "describe_key", {"KeyMetadata": {"KeyId": KEY, "Arn": KEY, **described}}, {"KeyId": KEY})


def test_awss_own_key_needs_no_permission(account: Account) -> None:
    account.answers("ec2", "get_ebs_default_kms_key_id", {"KmsKeyId": "alias/aws/ebs"})
    assert account.finds(check_volume_key).level == "ok"


@pytest.mark.parametrize("statements", [(OWNER, USE, GRANT), (OF_ACCOUNT,)])
def test_account_key_with_the_documented_policy_passes(account: Account, statements: Any) -> None:
    has_key(account)
    has_policy(account, *statements)
    assert account.finds(check_volume_key).level == "ok"


@pytest.mark.parametrize(
    ("statements", "granted", "denied"),
    [
        ((OWNER,), [], "kms:CreateGrant and kms:Decrypt and kms:DescribeKey and kms:GenerateDataKeyWithoutPlaintext"),
        ((OWNER, USE), ["Decrypt"], "kms:CreateGrant"),
        ((OWNER, USE), ["CreateGrant"], ""),
    ],
)
def test_key_that_auto_scaling_may_not_use_is_a_problem(
    account: Account, statements: Any, granted: list[str], denied: str
) -> None:
    has_key(account)
    has_policy(account, *statements)
    grants = [{"GranteePrincipal": ROLE, "Operations": granted}]
    account.answers("kms", "list_grants", {"Grants": grants}, {"KeyId": KEY, "GranteePrincipal": ROLE})
    found = account.finds(check_volume_key)
    assert found.level == ("problem" if denied else "ok")
    if denied:
        assert f"does not let AWSServiceRoleForAutoScaling {denied}: every instance would end" in found.sentence
        assert found.fix.startswith(f"allow {ROLE} in its policy")


def test_disabled_key_is_a_problem_with_a_fix(account: Account) -> None:
    has_key(account, KeyState="PendingDeletion")
    found = account.finds(check_volume_key)
    assert (found.level, found.fix) == ("problem", "aws ec2 reset-ebs-default-kms-key-id --region eu-west-1")
