"""Test the checks of the service-linked roles."""

import pytest

from cli.preflight.account.kms_key import check_kms_key
from cli.preflight.account.service_role import check_auto_scaling_role, check_efs_role, check_spot_role
from cli.preflight.checks import CHECKS
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

ROLE = "AWSServiceRoleForAutoScaling"
ARN = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/{ROLE}"
EXECUTOR = f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-eu-west-1"
FIX = "aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com"


def test_existing_role_passes(account: Account) -> None:
    role = {"Path": "/", "RoleName": ROLE, "RoleId": "AROA0123456789ABCDEF", "Arn": ARN, "CreateDate": 0}
    account.answers("iam", "get_role", {"Role": role}, {"RoleName": ROLE})
    assert str(account.finds(check_auto_scaling_role)) == f"ok       service role    {ROLE} is there"


@pytest.mark.parametrize(("decision", "levels"), [("allowed", ["warning"]), ("implicitDeny", ["warning", "problem"])])
def test_account_without_the_role_gets_the_command(account: Account, decision: str, levels: list[str]) -> None:
    action = "iam:CreateServiceLinkedRole"
    account.refuses("iam", "get_role", "NoSuchEntity", {"RoleName": ROLE})
    account.answers(
        "iam",
        "simulate_principal_policy",
        {"EvaluationResults": [{"EvalActionName": action, "EvalDecision": decision}]},
        {"PolicySourceArn": EXECUTOR, "ActionNames": [action], "ResourceArns": [ARN]},
    )
    found = account.check(check_auto_scaling_role)
    assert [finding.level for finding in found] == levels
    assert all(finding.fix.endswith(FIX) for finding in found)


def test_own_kms_key_requires_the_auto_scaling_role(account: Account) -> None:
    account.settings["kms_key"] = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    account.refuses("iam", "get_role", "NoSuchEntity", {"RoleName": ROLE})
    found = account.finds(check_auto_scaling_role)
    assert (found.level, found.fix) == ("problem", FIX)
    checks = [check for _, check in CHECKS]
    assert checks.index(check_auto_scaling_role) < checks.index(check_kms_key)


def test_first_mount_target_needs_the_role_of_efs(account: Account) -> None:
    assert account.check(check_efs_role) == []
    account.settings["shared_storage"] = "efs"
    role = "AWSServiceRoleForAmazonElasticFileSystem"
    account.refuses("iam", "get_role", "NoSuchEntity", {"RoleName": role})
    action = "iam:CreateServiceLinkedRole"
    arn = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/elasticfilesystem.amazonaws.com/{role}"
    account.answers(
        "iam",
        "simulate_principal_policy",
        {"EvaluationResults": [{"EvalActionName": action, "EvalDecision": "implicitDeny"}]},
        {"PolicySourceArn": EXECUTOR, "ActionNames": [action], "ResourceArns": [arn]},
    )
    message, problem = account.check(check_efs_role)
    assert message.sentence == f"there is no {role}: the deploy creates it"
    assert problem.sentence.endswith(f"may not create {role} ({action})")


@pytest.mark.parametrize(("is_there", "level"), [(True, "ok"), (False, "warning")])
def test_spot_has_a_role_of_its_own(account: Account, *, is_there: bool, level: str) -> None:
    account.settings["purchase"] = "spot"
    wanted = {"RoleName": "AWSServiceRoleForEC2Spot"}
    role = {"Path": "/", "RoleId": "AROA0123456789ABCDEF", "Arn": ARN, "CreateDate": 0, **wanted}
    if is_there:
        account.answers("iam", "get_role", {"Role": role}, wanted)
    else:
        account.refuses("iam", "get_role", "NoSuchEntity", wanted)
    found = account.finds(check_spot_role)
    assert found.level == level
    assert ("EC2 Auto Scaling may create it" in found.sentence) != is_there
