"""Test that a template's roles get the managed policies that they name, and lose them with the template."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Stacks, policy, session_keys
from tests.local.control_plane.templates import resource

OF_AWS = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
MISSING = "arn:aws:iam::123456789012:policy/missing"
TOO_RICH = "arn:aws:iam::aws:policy/AmazonEC2FullAccess"
"""Has a condition key that the local AWS does not know."""
SEES = {"Action": "ec2:DescribeInstances", "Resource": "*"}


def template(*arns: str, description: str = "of a node", **more: str) -> dict[str, Any]:
    trust = policy({"Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}})
    role: dict[str, Any] = {"AssumeRolePolicyDocument": trust, "Description": description, **more}
    return {"Resources": {"Role": resource("IAM::Role", **role, **({"ManagedPolicyArns": [*arns]} if arns else {}))}}


@pytest.fixture
def own(aws: Aws) -> Iterator[str]:
    """Create a customer-managed policy, and return its ARN."""
    iam = aws.client("iam")
    arn = iam.create_policy(PolicyName="sees", PolicyDocument=json.dumps(policy(SEES)))["Policy"]["Arn"]
    yield str(arn)
    iam.delete_policy(PolicyArn=arn)


def attached(aws: Aws, role: str) -> set[str]:
    policies = aws.client("iam").list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    return {attachment["PolicyArn"] for attachment in policies}


def may_see_instances(aws: Aws, role: str) -> bool:
    arn = aws.client("iam").get_role(RoleName=role)["Role"]["Arn"]
    try:
        aws.client("ec2", **session_keys(aws, arn, "i-1")).describe_instances()
    except ClientError as error:
        if error.response["Error"]["Code"] != "UnauthorizedOperation":
            raise
        return False
    return True


def test_role_has_the_named_policies_as_long_as_its_template_names_them(aws: Aws, own: str, stacks: Stacks) -> None:
    iam = aws.client("iam")
    stacks.create(template(own, OF_AWS))
    role = stacks.physical_id("Role")
    assert (attached(aws, role), may_see_instances(aws, role)) == ({own, OF_AWS}, True)
    stacks.update(template(OF_AWS, description="other"))
    assert (attached(aws, role), may_see_instances(aws, role)) == ({OF_AWS}, False)
    assert iam.get_role(RoleName=role)["Role"]["Description"] == "other"
    stacks.update(template(own))
    assert (attached(aws, role), may_see_instances(aws, role)) == ({own}, True)
    stacks.cloudformation.delete_stack(StackName="stack")
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.get_role(RoleName=role)


def test_update_keeps_a_policy_that_somebody_attached(aws: Aws, own: str, stacks: Stacks) -> None:
    iam = aws.client("iam")
    stacks.create(template(OF_AWS))
    role = stacks.physical_id("Role")
    iam.attach_role_policy(RoleName=role, PolicyArn=own)
    stacks.update(template())
    assert attached(aws, role) == {own}
    iam.detach_role_policy(RoleName=role, PolicyArn=own)


@pytest.mark.parametrize(
    ("arn", "reason"),
    [
        pytest.param(MISSING, f"Policy {MISSING} does not exist or is not attachable.", id="missing"),
        pytest.param(TOO_RICH, f"the local AWS cannot evaluate {TOO_RICH}: condition key must be one of ", id="rich"),
    ],
)
def test_fails_when_a_policy_is_missing_or_cannot_be_evaluated(
    aws: Aws, own: str, stacks: Stacks, arn: str, reason: str
) -> None:
    before = aws.client("iam").list_roles()["Roles"]
    stacks.create(template(own, arn))
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert any(status == "CREATE_FAILED" and reason in why for status, why in stacks.events("Role"))
    assert aws.client("iam").list_roles()["Roles"] == before, "no role is left"


def test_failed_update_leaves_the_old_policies(aws: Aws, own: str, stacks: Stacks) -> None:
    stacks.create(template(own))
    stacks.update(template(OF_AWS, MISSING))
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert attached(aws, stacks.physical_id("Role")) == {own}


def test_role_of_the_cdk_toolkit_may_have_any_policy(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template(TOO_RICH, RoleName="cdk-hnb659fds-lookup-role"))
    assert stacks.status() == "CREATE_COMPLETE"
    assert attached(aws, "cdk-hnb659fds-lookup-role") == {TOO_RICH}
