"""Test which keys the services know, and that each service refuses the others in its own words."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.local.control_plane.authorization.test_authorizer import ACCOUNT, refusal
from tests.local.control_plane.harness import REGION, Aws, Role, policy, user_with_policy, wait_for_server

NO_VALIDATION = Config(parameter_validation=False)
"""AWS and its SDKs grant at least 900 seconds; the local STS grants one."""
MAY_DESCRIBE = policy({"Action": "ec2:DescribeInstances", "Resource": "*"})
CALLS: dict[str, Callable[[Any], object]] = {
    "ec2": lambda ec2: ec2.describe_instances(),
    "s3": lambda s3: s3.list_objects_v2(Bucket="bucket"),
    "cloudformation": lambda stacks: stacks.describe_stacks(),
    "autoscaling": lambda groups: groups.describe_auto_scaling_groups(),
    "sts": lambda sts: sts.get_caller_identity(),
    "iam": lambda iam: iam.list_users(),
    "dynamodb": lambda db: db.list_tables(),
    "logs": lambda logs: logs.describe_log_groups(),
    "ssm": lambda ssm: ssm.describe_parameters(),
    "efs": lambda efs: efs.describe_file_systems(),
}
INVALID = "The security token included in the request is invalid."
EXPIRED = "The security token included in the request is expired"
UNKNOWN_ANSWERS = {
    "ec2": (401, "AuthFailure", "AWS was not able to validate the provided access credentials"),
    "s3": (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    "dynamodb": (400, "UnrecognizedClientException", INVALID),
    "logs": (400, "UnrecognizedClientException", INVALID),
    "ssm": (400, "UnrecognizedClientException", INVALID),
    "efs": (403, "UnrecognizedClientException", INVALID),
}
EXPIRED_ANSWERS = {
    "ec2": (400, "RequestExpired", "Request has expired."),
    "s3": (400, "ExpiredToken", "The provided token has expired."),
    "dynamodb": (400, "ExpiredTokenException", EXPIRED),
    "logs": (400, "ExpiredTokenException", EXPIRED),
    "ssm": (400, "ExpiredTokenException", EXPIRED),
    "efs": (403, "ExpiredTokenException", EXPIRED),
}


def session_token(aws: Aws, keys: dict[str, str], seconds: int) -> dict[str, str]:
    """Return the credentials of GetSessionToken for a key's owner."""
    return named(unvalidated_sts(aws, keys).get_session_token(DurationSeconds=seconds))


def unvalidated_sts(aws: Aws, keys: dict[str, str]) -> Any:
    """Return a client that sends what boto3 itself would refuse."""
    own = {"aws_access_key_id": "test", "aws_secret_access_key": "test"} | keys
    session: Any = boto3.Session()
    return session.client("sts", region_name=REGION, endpoint_url=aws.url, config=NO_VALIDATION, **own)


def named(answer: dict[str, Any]) -> dict[str, str]:
    issued = answer["Credentials"]
    return {
        "aws_access_key_id": issued["AccessKeyId"],
        "aws_secret_access_key": issued["SecretAccessKey"],
        "aws_session_token": issued["SessionToken"],
    }


def code(call: Callable[[], object]) -> str:
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


@pytest.fixture
def keys(aws: Aws) -> Iterator[dict[str, str]]:
    """Return the key of a user who may describe instances."""
    with user_with_policy(aws, "bob", MAY_DESCRIBE) as made:
        yield made


@pytest.fixture(scope="module")
def expired(aws: Aws) -> dict[str, str]:
    """Return temporary credentials of the administrator whose time is over; such credentials work before."""
    assert code(aws.client("sts", **session_token(aws, {}, 900)).get_caller_identity) == ""
    keys = session_token(aws, {}, 1)
    identity = aws.client("sts", **keys).get_caller_identity
    wait_for_server(lambda: code(identity) != "", "the credentials to expire")
    return keys


@pytest.mark.parametrize("service", CALLS)
def test_each_service_refuses_an_unknown_key_in_its_own_words(aws: Aws, service: str) -> None:
    stranger = aws.client(service, aws_access_key_id="AKIAIOSFODNN7EXAMPLE")
    expected = UNKNOWN_ANSWERS.get(service, (403, "InvalidClientTokenId", INVALID))
    assert refusal(lambda: CALLS[service](stranger)) == expected


@pytest.mark.parametrize("service", CALLS)
def test_each_service_refuses_expired_credentials_in_its_own_words(
    aws: Aws, expired: dict[str, str], service: str
) -> None:
    late = aws.client(service, **expired)
    assert refusal(lambda: CALLS[service](late)) == EXPIRED_ANSWERS.get(service, (403, "ExpiredToken", EXPIRED))


def test_head_request_with_expired_credentials_gets_a_status_alone(aws: Aws, expired: dict[str, str]) -> None:
    s3 = aws.client("s3", **expired)
    assert refusal(lambda: s3.head_bucket(Bucket="bucket"))[:2] == (400, "400")


def test_roles_session_expires(aws: Aws, role: Role) -> None:
    assert code(aws.client("ec2", **role.session("i-1")).describe_instances) == ""
    keys = named(unvalidated_sts(aws, {}).assume_role(RoleArn=role.arn, RoleSessionName="i-1", DurationSeconds=1))
    describe = aws.client("ec2", **keys).describe_instances
    wait_for_server(lambda: code(describe) == "RequestExpired", "the session to expire")


def test_key_that_is_deleted_or_inactive_is_unknown(aws: Aws) -> None:
    iam = aws.client("iam")
    with user_with_policy(aws, "eve", MAY_DESCRIBE) as keys:
        describe = aws.client("ec2", **keys).describe_instances
        for status, expected in (("Active", ""), ("Inactive", "AuthFailure"), ("Active", "")):
            iam.update_access_key(UserName="eve", AccessKeyId=keys["aws_access_key_id"], Status=status)
            assert code(describe) == expected
    assert code(describe) == "AuthFailure"


def test_session_token_needs_no_permission_and_has_its_users_own(aws: Aws, keys: dict[str, str]) -> None:
    issued = session_token(aws, keys, 900)
    assert issued["aws_access_key_id"].startswith("ASIA")
    ec2 = aws.client("ec2", **issued)
    ec2.describe_instances()
    assert code(ec2.describe_vpcs) == "UnauthorizedOperation"
    identity = aws.client("sts", **issued).get_caller_identity()
    assert identity["Arn"] == f"arn:aws:iam::{ACCOUNT}:user/bob"


def test_temporary_credentials_get_no_session_token(aws: Aws, role: Role, keys: dict[str, str]) -> None:
    expected = (403, "AccessDenied", "Cannot call GetSessionToken with session credentials")
    for temporary in (role.session("i-1"), session_token(aws, keys, 900), session_token(aws, {}, 900)):
        assert refusal(aws.client("sts", **temporary).get_session_token) == expected


def test_session_token_without_mfa_calls_no_iam_and_two_actions_of_sts(aws: Aws, role: Role) -> None:
    issued = session_token(aws, {}, 900)
    assert refusal(aws.client("iam", **issued).list_users) == (403, "InvalidClientTokenId", INVALID)
    sts = aws.client("sts", **issued)
    assert code(lambda: sts.get_federation_token(Name="guest")) == "AccessDenied"
    assert code(lambda: sts.decode_authorization_message(EncodedMessage="text")) == "AccessDenied"
    sts.get_caller_identity()
    sts.assume_role(RoleArn=role.arn, RoleSessionName="i-1")


def test_session_token_ends_with_its_user(aws: Aws) -> None:
    with user_with_policy(aws, "mia", policy({"Action": "*", "Resource": "*"})) as keys:
        describe = aws.client("ec2", **session_token(aws, keys, 900)).describe_instances
        assert code(describe) == ""
    assert code(describe) == "AuthFailure"


def test_schedules_and_users_who_know_moto_have_keys_of_their_own(aws: Aws) -> None:
    for key in ("local", "test", "scheduler"):
        assert code(aws.client("ec2", aws_access_key_id=key).describe_instances) == ""
