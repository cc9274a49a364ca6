"""Test that the policy simulator answers like the calls themselves."""

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Role, policy, user_with_policy

READ = "s3:GetObject"
BUCKET = "arn:aws:s3:::mine/a"
ONLY_TAGGED = {"Action": READ, "Resource": "*", "Condition": {"StringEquals": {"aws:ResourceTag/team": "vision"}}}
TAGGED = {"ContextKeyName": "aws:ResourceTag/team", "ContextKeyType": "string", "ContextKeyValues": ["vision"]}


def simulate(aws: Aws, arn: str, **arguments: Any) -> Mapping[str, str]:
    answer = aws.client("iam").simulate_principal_policy(
        PolicySourceArn=arn, ActionNames=[READ, "s3:PutObject"], ResourceArns=[BUCKET], **arguments
    )
    return {result["EvalActionName"]: result["EvalDecision"] for result in answer["EvaluationResults"]}


def test_administrator_and_the_roles_of_cdk_bootstrap_may_do_anything(aws: Aws) -> None:
    anything = {READ: "allowed", "s3:PutObject": "allowed"}
    assert simulate(aws, aws.client("sts").get_caller_identity()["Arn"]) == anything
    toolkit = Role.make(aws, "cdk-hnb659fds-cfn-exec-role", policy({"Action": "ec2:*", "Resource": "*"}))
    assert simulate(aws, toolkit.arn) == anything
    toolkit.end()


def test_policies_of_a_role_and_of_a_user_decide(aws: Aws, role: Role) -> None:
    allowed = {"Action": READ, "Resource": "*"}
    denied = {"Action": "s3:Put*", "Resource": "arn:aws:s3:::mine/*", "Effect": "Deny"}
    role.allow(policy(allowed))
    assert simulate(aws, role.arn) == {READ: "allowed", "s3:PutObject": "implicitDeny"}
    role.allow(policy(allowed, denied))
    assert simulate(aws, role.arn) == {READ: "allowed", "s3:PutObject": "explicitDeny"}
    with user_with_policy(aws, "reader", policy(allowed)):
        arn = aws.client("iam").get_user(UserName="reader")["User"]["Arn"]
        assert simulate(aws, arn) == {READ: "allowed", "s3:PutObject": "implicitDeny"}


def test_given_condition_keys_count(aws: Aws, role: Role) -> None:
    role.allow(policy(ONLY_TAGGED))
    assert simulate(aws, role.arn)[READ] == "implicitDeny"
    assert simulate(aws, role.arn, ContextEntries=[TAGGED])[READ] == "allowed"


def test_fails_when_the_principal_does_not_exist(aws: Aws) -> None:
    with pytest.raises(ClientError, match=r"NoSuchEntity.* does not exist"):
        simulate(aws, "arn:aws:iam::123456789012:role/nobody")
