import json
from pathlib import Path
from typing import Any

import pytest

from tests.policies.evaluate import is_allowed
from tests.policies.recorded import LEADING_KEYS, UnknownCallError, read_calls, to_request

ROLE = "arn:aws:iam::123456789012:role/of-workers"
STACK_ID = "arn:aws:cloudformation:us-east-1:123456789012:stack/deeplearning/0-1"
MEMBERSHIP = {"id": {"S": "membership"}}


def line(service: str, action: str, resources: dict[str, Any] | None = None, **caller: Any) -> dict[str, Any]:
    return {
        "time": "2026-11-20T00:00:00.000+00:00",
        "region": "us-east-1",
        "service": service,
        "action": action,
        "resources": resources or {},
        "caller": {"role_arn": ROLE, "user_id": "AROA:i-1", **caller},
    }


def policy(action: str) -> dict[str, Any]:
    return {"p": {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}}


@pytest.mark.parametrize(
    ("found", "action", "resource", "keys"),
    [
        (line("s3", "GET /bucket/some/key.zip"), "s3:GetObject", "arn:aws:s3:::bucket/some/key.zip", None),
        (line("s3", "HEAD /bucket/key.zip"), "s3:GetObject", "arn:aws:s3:::bucket/key.zip", None),
        (line("s3", "PUT /bucket/key"), "s3:PutObject", "arn:aws:s3:::bucket/key", None),
        (line("s3", "POST /bucket/key?uploads"), "s3:PutObject", "arn:aws:s3:::bucket/key", None),
        (line("s3", "PUT /bucket/key?partNumber&uploadId"), "s3:PutObject", "arn:aws:s3:::bucket/key", None),
        (line("s3", "DELETE /bucket/key"), "s3:DeleteObject", "arn:aws:s3:::bucket/key", None),
        (line("s3", "GET /bucket?list-type&prefix"), "s3:ListBucket", "arn:aws:s3:::bucket", None),
        (line("s3", "GET /bucket/?list-type&prefix"), "s3:ListBucket", "arn:aws:s3:::bucket", None),
        (
            line("dynamodb", "GetItem", {"TableName": "t", "Key": MEMBERSHIP}),
            "dynamodb:GetItem",
            "arn:aws:dynamodb:us-east-1:123456789012:table/t",
            ("membership",),
        ),
        (
            line("dynamodb", "BatchGetItem", {"TableName": "t", "Keys": [MEMBERSHIP, {"id": {"S": "AROA:i-2"}}]}),
            "dynamodb:BatchGetItem",
            "arn:aws:dynamodb:us-east-1:123456789012:table/t",
            ("membership", "AROA:i-2"),
        ),
        (
            line("cloudformation", "SignalResource", {"StackName": STACK_ID}),
            "cloudformation:SignalResource",
            STACK_ID,
            None,
        ),
        (
            line("cloudformation", "SignalResource", {"StackName": "deeplearning"}),
            "cloudformation:SignalResource",
            "arn:aws:cloudformation:us-east-1:123456789012:stack/deeplearning/*",
            None,
        ),
        (
            line("logs", "PutLogEvents", {"logGroupName": "/g", "logStreamName": "i-1"}),
            "logs:PutLogEvents",
            "arn:aws:logs:us-east-1:123456789012:log-group:/g:log-stream:i-1",
            None,
        ),
        (line("ec2", "DescribeInstances"), "ec2:DescribeInstances", "*", None),
    ],
)
def test_calls_in_terms_of_iam(found: dict[str, Any], action: str, resource: str, keys: tuple[str, ...] | None) -> None:
    request = to_request(found)
    assert request is not None
    assert (request.action, request.resource, request.user_id) == (action, resource, "AROA:i-1")
    assert request.context.get(LEADING_KEYS) == keys


def test_everybody_may_ask_who_they_are() -> None:
    assert to_request(line("sts", "GetCallerIdentity")) is None


@pytest.mark.parametrize(
    "found",
    [
        line("s3", "GET /bucket"),
        line("s3", "GET /bucket/key?acl"),
        line("s3", "PUT /bucket/key?acl"),
        line("s3", "PUT /bucket"),
        line("s3", "PUT /bucket?list-type"),
        line("s3", "DELETE /bucket/key?uploadId"),
        line("s3", "DELETE /bucket/key?versionId"),
        line("dynamodb", "Scan", {"TableName": "t"}),
        line("ec2", "TerminateInstances"),
        line("ssm", "GetParameter"),
    ],
)
def test_fails_when_a_call_is_not_described(found: dict[str, Any]) -> None:
    with pytest.raises(UnknownCallError):
        to_request(found)


def write(log: Path, *lines: dict[str, Any]) -> Path:
    log.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return log


def test_each_call_has_the_policies_of_its_moment(tmp_path: Path) -> None:
    log = write(
        tmp_path / "requests.jsonl",
        line("ec2", "DescribeInstances", policies=policy("ec2:*")),
        line("ec2", "DescribeInstances"),
        line("ec2", "DescribeInstances", policies=policy("s3:*")),
    )
    assert [is_allowed(call.statements, call.request) for call in read_calls(log)] == [True, True, False]


def test_policies_of_a_role_are_not_anothers(tmp_path: Path) -> None:
    log = write(
        tmp_path / "requests.jsonl",
        line("ec2", "DescribeInstances", policies=policy("ec2:*")),
        line("ec2", "DescribeInstances", role_arn=f"{ROLE}-2", policies=policy("s3:*")),
    )
    assert [is_allowed(call.statements, call.request) for call in read_calls(log)] == [True, False]


def test_calls_of_users_and_of_roles_that_are_taken_down_are_left_out(tmp_path: Path) -> None:
    users = line("ec2", "TerminateInstances")
    del users["caller"]
    deployer = line("ec2", "TerminateInstances", user_id="AROA:aws-cdk-root", policies=policy("*"))
    log = write(tmp_path / "requests.jsonl", users, deployer, line("ec2", "DescribeInstances", policies={}))
    assert list(read_calls(log)) == []


@pytest.mark.parametrize("ending", ["", ":*"])
def test_log_groups_are_named_as_cloudformation_does(tmp_path: Path, ending: str) -> None:
    group = "arn:aws:logs:us-east-1:123456789012:log-group:/g"
    found = policy("logs:PutLogEvents")
    found["p"]["Statement"][0]["Resource"] = group + ending
    log = write(
        tmp_path / "requests.jsonl",
        line("logs", "PutLogEvents", {"logGroupName": "/g", "logStreamName": "i-1"}, policies=found),
        line("logs", "PutLogEvents", {"logGroupName": "/g2", "logStreamName": "i-1"}),
    )
    assert [is_allowed(call.statements, call.request) for call in read_calls(log)] == [True, False]
