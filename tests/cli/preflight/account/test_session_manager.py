"""Test the check of the key that encrypts Session Manager's sessions."""

import json

import pytest

from cli.preflight.account.session_manager import check_session_encryption
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

DOCUMENT = "SSM-SessionManagerRunShell"


@pytest.fixture
def private(account: Account) -> Account:
    account.settings |= {"private": True, "key_name": "mine"}
    return account


def test_public_cluster_makes_no_session_manager_call(account: Account) -> None:
    assert account.check(check_session_encryption) == []


def test_account_without_preferences_or_without_a_key_is_fine(private: Account) -> None:
    private.refuses("ssm", "get_document", "InvalidDocument", {"Name": DOCUMENT})
    assert private.finds(check_session_encryption).level == "ok"
    private.answers("ssm", "get_document", {"Content": json.dumps({"inputs": {"kmsKeyId": ""}})})
    assert private.finds(check_session_encryption).level == "ok"


def test_key_for_sessions_is_reported_with_its_permissions(private: Account) -> None:
    private.answers("ssm", "get_document", {"Content": json.dumps({"inputs": {"kmsKeyId": "alias/sessions"}})})
    found = private.finds(check_session_encryption)
    assert found.level == "warning"
    assert "encrypt sessions with KMS key alias/sessions" in found.sentence
    assert f"kms:Decrypt where aws:PrincipalArn is like arn:aws:iam::{ACCOUNT}:role/demo-ClusterRoles*" in found.fix
    assert "kms:GenerateDataKey to the users" in found.fix
