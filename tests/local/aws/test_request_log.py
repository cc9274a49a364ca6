import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from local.aws.request_log import entry
from tests.local.aws.harness import REGION, Aws

NOW = datetime(2026, 11, 20, tzinfo=timezone.utc)
SIGNED = "AWS4-HMAC-SHA256 Credential=ASIAKEY/20261120/us-east-1/{}/aws4_request, SignedHeaders=host"


def policy(action: str) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}


@pytest.fixture
def role(aws: Aws, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    iam, name = aws.client("iam"), f"of-{request.node.name}"[:64]
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(policy("sts:AssumeRole")))["Role"]
    iam.put_role_policy(RoleName=name, PolicyName="few", PolicyDocument=json.dumps(policy("logs:One")))
    yield {"arn": made["Arn"], "id": made["RoleId"], "name": name}
    iam.delete_role_policy(RoleName=name, PolicyName="few")
    iam.delete_role(RoleName=name)


def keys_of_session(aws: Aws, role_arn: str, session: str) -> dict[str, str]:
    issued = aws.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=session)["Credentials"]
    return {
        "aws_access_key_id": issued["AccessKeyId"],
        "aws_secret_access_key": issued["SecretAccessKey"],
        "aws_session_token": issued["SessionToken"],
    }


def noted(aws: Aws, access_key: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in aws.request_log.read_text().splitlines()]
    return [line for line in lines if line["access_key"] == access_key]


def test_requests_are_in_the_file_while_the_server_runs(aws: Aws) -> None:
    aws.client("logs", aws_access_key_id="of-a-node").describe_log_groups(logGroupNamePrefix="x")
    (found,) = noted(aws, "of-a-node")
    assert (found["service"], found["action"], found["region"]) == ("logs", "DescribeLogGroups", REGION)
    assert datetime.fromisoformat(found["time"]).tzinfo
    assert "caller" not in found


def test_caller_is_the_session_of_a_role(aws: Aws, role: dict[str, str]) -> None:
    keys = keys_of_session(aws, role["arn"], "i-1")
    aws.client("logs", **keys).describe_log_groups()
    (found,) = noted(aws, keys["aws_access_key_id"])
    assert (found["caller"]["role_arn"], found["caller"]["user_id"]) == (role["arn"], f"{role['id']}:i-1")


def test_what_the_role_allows_is_noted_at_first_and_when_it_changes(aws: Aws, role: dict[str, str]) -> None:
    keys = [keys_of_session(aws, role["arn"], session) for session in ("i-1", "i-2")]
    for each in keys:
        aws.client("logs", **each).describe_log_groups()
    changed = policy("logs:Two")
    aws.client("iam").put_role_policy(RoleName=role["name"], PolicyName="few", PolicyDocument=json.dumps(changed))
    aws.client("logs", **keys[0]).describe_log_groups()
    first, third = noted(aws, keys[0]["aws_access_key_id"])
    (second,) = noted(aws, keys[1]["aws_access_key_id"])
    policies = [line["caller"].get("policies") for line in (first, second, third)]
    assert policies == [{"few": policy("logs:One")}, None, {"few": changed}]


@pytest.mark.parametrize(
    ("service", "request_", "body", "action", "resources"),
    [
        (
            "dynamodb",
            {"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.GetItem"},
            b'{"TableName": "table", "Key": {"id": {"S": "membership"}}}',
            "GetItem",
            {"TableName": "table", "Key": {"id": {"S": "membership"}}},
        ),
        (
            "cloudformation",
            {"CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8"},
            b"Action=SignalResource&StackName=stack&UniqueId=i-1&Version=2010-05-15",
            "SignalResource",
            {"StackName": "stack", "UniqueId": "i-1"},
        ),
        (
            "ec2",
            {"CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8"},
            b"Action=AssociateAddress&AllocationId=eipalloc-1&InstanceId=i-1&AllowReassociation=true",
            "AssociateAddress",
            {"AllocationId": "eipalloc-1", "InstanceId": "i-1"},
        ),
        (
            "autoscaling",
            {"CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8"},
            b"Action=CompleteLifecycleAction&LifecycleHookName=drain&AutoScalingGroupName=group&InstanceId=i-1",
            "CompleteLifecycleAction",
            {"LifecycleHookName": "drain", "AutoScalingGroupName": "group", "InstanceId": "i-1"},
        ),
        ("s3", {"REQUEST_METHOD": "GET", "PATH_INFO": "/bucket/key"}, b"", "GET /bucket/key", {}),
        (
            "s3",
            {"REQUEST_METHOD": "GET", "PATH_INFO": "/bucket", "QUERY_STRING": "prefix=x&list-type=2&acl"},
            b"",
            "GET /bucket?acl&list-type&prefix",
            {},
        ),
    ],
)
def test_each_protocol_is_understood(
    service: str, request_: dict[str, str], body: bytes, action: str, resources: dict[str, object]
) -> None:
    environ = {"HTTP_AUTHORIZATION": SIGNED.format(service)} | request_
    assert entry(environ, body, NOW) == {
        "time": "2026-11-20T00:00:00.000+00:00",
        "access_key": "ASIAKEY",
        "region": "us-east-1",
        "service": service,
        "action": action,
        "resources": resources,
    }


def test_contents_and_secrets_are_left_out() -> None:
    own = {"S": "AROA:i-1"}
    item = {"id": own, "host_key": {"S": "ssh-ed25519 AAAA"}}
    body = json.dumps({"TableName": "table", "Item": item, "SecretKey": "x"}).encode()
    found = entry({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.PutItem"}, body, NOW)
    assert found["resources"] == {"TableName": "table", "Key": {"id": own}}


def test_keys_of_a_batch_are_noted() -> None:
    keys = [{"id": {"S": "AROA:i-1"}}]
    body = json.dumps({"RequestItems": {"table": {"Keys": keys}}}).encode()
    found = entry({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.BatchGetItem"}, body, NOW)
    assert found["resources"] == {"TableName": "table", "Keys": keys}


def test_malformed_request_is_noted_too() -> None:
    found = entry({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.GetItem"}, b"{", NOW)
    assert (found["action"], found["resources"]) == ("GetItem", {})
