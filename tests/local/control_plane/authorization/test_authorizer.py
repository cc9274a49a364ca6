"""Test who is authorized, and how refusals look to unmodified clients."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization import authorizer
from local.control_plane.authorization.callers import Caller
from tests.local.control_plane.harness import ANYTHING, REGION, Aws, Role, Stacks, policy
from tests.local.control_plane.templates import reference, resource

ACCOUNT = "123456789012"
FORM = "application/x-www-form-urlencoded"


def refusal(call: Callable[[], object]) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as raised:
        call()
    answer = raised.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"].get("Message", "")


@pytest.mark.parametrize(
    ("service", "call", "status", "code", "start", "action", "resource_"),
    [
        (
            "dynamodb",
            lambda db: db.get_item(TableName="t", Key={"id": {"S": "a"}}),
            400,
            "AccessDeniedException",
            "",
            "dynamodb:GetItem",
            f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/t",
        ),
        (
            "logs",
            lambda logs: logs.create_log_stream(logGroupName="/g", logStreamName="s"),
            400,
            "AccessDeniedException",
            "",
            "logs:CreateLogStream",
            f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/g:log-stream:s",
        ),
        (
            "ec2",
            lambda ec2: ec2.terminate_instances(InstanceIds=["i-0123456789abcdef0"]),
            403,
            "UnauthorizedOperation",
            "You are not authorized to perform this operation. ",
            "ec2:TerminateInstances",
            f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0123456789abcdef0",
        ),
        (
            "ec2",
            lambda ec2: ec2.describe_instances(),
            403,
            "UnauthorizedOperation",
            "You are not authorized to perform this operation. ",
            "ec2:DescribeInstances",
            "",
        ),
        (
            "autoscaling",
            lambda groups: groups.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=1),
            403,
            "AccessDenied",
            "",
            "autoscaling:SetDesiredCapacity",
            f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/g",
        ),
        (
            "cloudformation",
            lambda stacks: stacks.delete_stack(StackName="a"),
            403,
            "AccessDenied",
            "",
            "cloudformation:DeleteStack",
            f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/a/*",
        ),
        (
            "s3",
            lambda s3: s3.get_object(Bucket="b-1", Key="k"),
            403,
            "AccessDenied",
            "",
            "s3:GetObject",
            '"arn:aws:s3:::b-1/k"',
        ),
        (
            "sts",
            lambda sts: sts.assume_role(RoleArn=f"arn:aws:iam::{ACCOUNT}:role/admin", RoleSessionName="xx"),
            403,
            "AccessDenied",
            "",
            "sts:AssumeRole",
            f"arn:aws:iam::{ACCOUNT}:role/admin",
        ),
    ],
)
def test_refusal_matches_the_services_wording(
    aws: Aws,
    role: Role,
    service: str,
    call: Callable[[Any], object],
    status: int,
    code: str,
    start: str,
    action: str,
    resource_: str,
) -> None:
    role.allow(policy({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::other/*"}))
    on = f" on resource: {resource_}" if resource_ else ""
    who = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role.name}/i-1"
    sentence = (
        f"User: {who} is not authorized to perform: {action}{on} because no identity-based policy allows the "
        f"{action} action"
    )
    found = refusal(lambda: call(aws.client(service, **role.session("i-1"))))
    assert found == (status, code, start + sentence)


def test_head_request_gets_a_status_alone(aws: Aws, role: Role) -> None:
    role.allow(policy({"Action": "s3:PutObject", "Resource": "*"}))
    s3 = aws.client("s3", **role.session("i-1"))
    assert refusal(lambda: s3.head_object(Bucket="b-1", Key="k"))[:2] == (403, "403")


def test_explicit_deny_is_named_in_the_error(aws: Aws, role: Role) -> None:
    role.allow(
        policy(
            {"Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:PutObject", "NotResource": "arn:aws:s3:::b-1/checkpoints/*"},
        )
    )
    s3 = aws.client("s3", **role.session("i-1"))
    _, _, message = refusal(lambda: s3.put_object(Bucket="b-1", Key="mxnet/x", Body=b""))
    assert message.endswith('on resource: "arn:aws:s3:::b-1/mxnet/x" with an explicit deny in an identity-based policy')
    assert refusal(lambda: s3.put_object(Bucket="b-1", Key="checkpoints/x", Body=b""))[1] == "NoSuchBucket"


def test_policy_of_a_templates_bucket_is_in_force(aws: Aws, role: Role, stacks: Stacks) -> None:
    objects = {"Fn::Join": ["", ["arn:aws:s3:::", reference("Bucket"), "/*"]]}
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    statements = [
        {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": objects, "Condition": insecure},
        {"Effect": "Deny", "Principal": {"AWS": role.arn}, "Action": "s3:PutObject", "Resource": objects},
    ]
    document = {"Version": "2012-10-17", "Statement": statements}
    own = resource("S3::BucketPolicy", Bucket=reference("Bucket"), PolicyDocument=document)
    stacks.create({"Resources": {"Bucket": resource("S3::Bucket"), "Policy": own}})
    s3, bucket = aws.client("s3", **role.session("i-1")), stacks.physical_id("Bucket")
    assert refusal(lambda: s3.get_object(Bucket=bucket, Key="k"))[1] == "NoSuchKey"
    _, code, message = refusal(lambda: s3.put_object(Bucket=bucket, Key="k", Body=b""))
    assert code == "AccessDenied"
    assert message.endswith("with an explicit deny in a resource-based policy")


def test_change_of_the_policies_counts_at_once(aws: Aws, role: Role) -> None:
    ec2 = aws.client("ec2", **role.session("i-1"))
    ec2.describe_instances()
    role.allow(policy({"Action": "ec2:DescribeImages", "Resource": "*"}))
    assert refusal(ec2.describe_instances)[1] == "UnauthorizedOperation"
    role.allow(ANYTHING)
    ec2.describe_instances()


def test_deleted_role_allows_nothing(aws: Aws) -> None:
    made = Role.make(aws, "of-a-moment")
    ec2 = aws.client("ec2", **made.session("i-1"))
    ec2.describe_instances()
    made.end()
    assert refusal(ec2.describe_instances)[1] == "UnauthorizedOperation"


def test_undescribed_call_of_a_role_is_refused(aws: Aws, role: Role) -> None:
    dynamodb = aws.client("dynamodb", **role.session("i-1"))
    status, code, message = refusal(lambda: dynamodb.update_table(TableName="t", BillingMode="PAY_PER_REQUEST"))
    assert (status, code) == (400, "AccessDeniedException")
    assert "not authorized to perform: dynamodb:UpdateTable because" in message


def call(service: str, action: str, *, key: str, address: str = "127.0.0.1") -> ApiRequest:
    credential = f"AWS4-HMAC-SHA256 Credential={key}/20261120/{REGION}/{service}/aws4_request, SignedHeaders=host"
    protocol = {"HTTP_X_AMZ_TARGET": f"X.{action}"} if service == "dynamodb" else {"CONTENT_TYPE": FORM}
    environ = {"REQUEST_METHOD": "POST", "REMOTE_ADDR": address, **protocol}
    return ApiRequest(environ | ({"HTTP_AUTHORIZATION": credential} if key else {}), b"{}")


NODE = Caller(
    session_arn=f"arn:aws:sts::{ACCOUNT}:assumed-role/of-workers/i-1",
    principal_arn=f"arn:aws:iam::{ACCOUNT}:role/of-workers",
    account=ACCOUNT,
    partition="aws",
    user_id="AROA:i-1",
    is_role=True,
    documents=(json.dumps(ANYTHING),),
    context={},
)


@pytest.mark.parametrize(
    ("node", "action", "line"),
    [
        (NODE, "PutItem", "dynamodb:PutItem must name 'TableName'"),
        (NODE, "UpdateTable", "dynamodb:UpdateTable is not described in local/control_plane/authorization"),
        (
            replace(NODE, documents=(json.dumps({"Version": "2008-10-17", "Statement": []}),)),
            "ListTables",
            "version must be 2012-10-17, got '2008-10-17'",
        ),
    ],
)
def test_log_names_calls_that_cannot_be_authorized(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, node: Caller, action: str, line: str
) -> None:
    monkeypatch.setattr(authorizer, "find_caller", lambda _key: node)
    found = authorizer.authorize(call("dynamodb", action, key="ASIA"))
    assert found.refused
    assert caplog.messages == [f"refused to {NODE.session_arn}: {line}"]


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("dynamodb", "UnrecognizedClientException"),
        ("ec2", "AuthFailure"),
        ("s3", "InvalidAccessKeyId"),
        ("autoscaling", "InvalidClientTokenId"),
    ],
)
@pytest.mark.parametrize("key", ["local", ""])
def test_invented_access_key_is_refused(service: str, code: str, key: str) -> None:
    made_up = authorizer.authorize(call(service, "Anything", key=key, address="10.0.0.5"))
    assert made_up.response
    assert (code if key else "") in made_up.response.get_data(as_text=True)
    assert authorizer.authorize(call(service, "Anything", key=key)).response is None


def test_roles_of_the_cdk_toolkit_are_not_checked(aws: Aws) -> None:
    made = Role.make(aws, "cdk-hnb659fds-deploy-role", policy({"Action": "s3:GetObject", "Resource": "*"}))
    aws.client("ec2", **made.session("aws-cdk-root")).describe_key_pairs()
    made.end()


@pytest.fixture
def user(aws: Aws) -> Iterator[dict[str, str]]:
    """Create a user whose policies the tests choose, and return its keys."""
    iam = aws.client("iam")
    iam.create_user(UserName="ann")
    made = iam.create_access_key(UserName="ann")["AccessKey"]
    yield {"aws_access_key_id": made["AccessKeyId"], "aws_secret_access_key": made["SecretAccessKey"]}
    iam.delete_access_key(UserName="ann", AccessKeyId=made["AccessKeyId"])
    iam.delete_user(UserName="ann")


def test_users_inline_attached_and_group_policies_count(aws: Aws, user: dict[str, str]) -> None:
    iam, ec2 = aws.client("iam"), aws.client("ec2", **user)
    who = f"arn:aws:iam::{ACCOUNT}:user/ann"
    assert f"User: {who} is not authorized" in refusal(ec2.describe_instances)[2]
    images, instances, pairs = (
        policy({"Action": f"ec2:Describe{name}", "Resource": "*"}) for name in ("Images", "Instances", "KeyPairs")
    )
    iam.put_user_policy(UserName="ann", PolicyName="own", PolicyDocument=json.dumps(images))
    attached = iam.create_policy(PolicyName="attached", PolicyDocument=json.dumps(instances))["Policy"]["Arn"]
    iam.attach_user_policy(UserName="ann", PolicyArn=attached)
    iam.create_group(GroupName="team")
    iam.put_group_policy(GroupName="team", PolicyName="own", PolicyDocument=json.dumps(pairs))
    iam.add_user_to_group(UserName="ann", GroupName="team")
    ec2.describe_images()
    ec2.describe_instances()
    # its resources are not described here, so a user needs the action on every resource
    ec2.describe_key_pairs()
    assert refusal(ec2.describe_vpcs)[1] == "UnauthorizedOperation"
    iam.remove_user_from_group(UserName="ann", GroupName="team")
    assert refusal(ec2.describe_key_pairs)[1] == "UnauthorizedOperation"
    iam.delete_group_policy(GroupName="team", PolicyName="own")
    iam.delete_group(GroupName="team")
    iam.detach_user_policy(UserName="ann", PolicyArn=attached)
    iam.delete_policy(PolicyArn=attached)
    iam.delete_user_policy(UserName="ann", PolicyName="own")
