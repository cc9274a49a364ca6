"""Test that the request log has each call with its permissions and without its contents."""

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.api_request import ApiRequest
from local.control_plane.request_log import entry
from tests.local.control_plane.harness import REGION, Aws, Role, policy

NOW = datetime(2026, 11, 20, tzinfo=timezone.utc)
SIGNED = "AWS4-HMAC-SHA256 Credential=ASIAKEY/20261120/us-east-1/{}/aws4_request, SignedHeaders=host"


def noted(aws: Aws, access_key: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in aws.request_log.read_text().splitlines()]
    return [line for line in lines if line["access_key"] == access_key]


def test_requests_are_in_the_file_while_the_server_runs(aws: Aws) -> None:
    aws.client("logs", aws_access_key_id="local").describe_log_groups(logGroupNamePrefix="x")
    *_, logged = noted(aws, "local")
    assert (logged["service"], logged["action"], logged["region"]) == ("logs", "DescribeLogGroups", REGION)
    assert datetime.fromisoformat(logged["time"]).tzinfo
    assert "caller" not in logged


def test_request_log_has_the_permissions_that_a_call_needs(aws: Aws, role: Role) -> None:
    keys = role.session("i-1")
    aws.client("logs", **keys).describe_log_groups()
    (logged,) = noted(aws, keys["aws_access_key_id"])
    assert logged["caller"] == {"role_arn": role.arn, "user_id": f"{role.role_id}:i-1", "policies": 1}
    (permission,) = logged["needs"]
    assert (permission["action"], permission["resource"]) == ("logs:DescribeLogGroups", "*")
    assert permission["context"]["aws:userid"] == [f"{role.role_id}:i-1"]
    assert "refused" not in logged


def test_request_log_marks_refused_calls(aws: Aws, role: Role) -> None:
    role.allow(policy({"Action": "logs:PutLogEvents", "Resource": "*"}))
    keys = role.session("i-1")
    with pytest.raises(ClientError):
        aws.client("logs", **keys).describe_log_groups()
    (logged,) = noted(aws, keys["aws_access_key_id"])
    assert logged["refused"] == logged["needs"][0]


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
            "dynamodb",
            {"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.BatchGetItem"},
            b'{"RequestItems": {"one": {"Keys": [{"id": {"S": "a"}}, {"id": {"S": "b"}}], "ConsistentRead": true},'
            b' "two": {"Keys": [{"id": {"S": "c"}}]}}}',
            "BatchGetItem",
            {
                "RequestItems": {
                    "one": {"Keys": [{"id": {"S": "a"}}, {"id": {"S": "b"}}]},
                    "two": {"Keys": [{"id": {"S": "c"}}]},
                }
            },
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
            "ec2",
            {"CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8"},
            b"Action=AssociateAddress&PublicIp=198.51.100.1&NetworkInterfaceId=eni-1&PrivateIpAddress=10.0.0.1",
            "AssociateAddress",
            {"PublicIp": "198.51.100.1", "NetworkInterfaceId": "eni-1"},
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
    environ = {"REQUEST_METHOD": "POST", "HTTP_AUTHORIZATION": SIGNED.format(service)} | request_
    assert entry(ApiRequest(environ, body), NOW) == {
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
    logged = entry(ApiRequest({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.PutItem"}, body), NOW)
    assert logged["resources"] == {"TableName": "table", "Key": {"id": own}}


def test_each_item_of_a_transaction_is_noted_without_its_contents() -> None:
    one, other = {"id": {"S": "membership"}}, {"id": {"S": "generation"}}
    items: list[dict[str, Any]] = [
        {"Put": {"TableName": "table", "Item": {**one, "members": {"S": "x"}}, "ConditionExpression": "a = :b"}},
        {"Delete": {"TableName": "table-2", "Key": other}},
    ]
    body = json.dumps({"TransactItems": items}).encode()
    logged = entry(ApiRequest({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.TransactWriteItems"}, body), NOW)
    assert logged["resources"] == {
        "TransactItems": [
            {"Put": {"TableName": "table", "Key": one}},
            {"Delete": {"TableName": "table-2", "Key": other}},
        ]
    }


def test_malformed_request_is_noted_too() -> None:
    logged = entry(ApiRequest({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.GetItem"}, b"{"), NOW)
    assert (logged["action"], logged["resources"]) == ("GetItem", {})
