import json
from pathlib import Path
from typing import Any

import pytest

from tests.policies.recorded import GROUP_OF_INSTANCE, LEADING_KEYS, UnknownCallError, read_calls, to_requests

ROLE = "arn:aws:iam::123456789012:role/of-workers"
STACK_ID = "arn:aws:cloudformation:us-east-1:123456789012:stack/deeplearning/0-1"
TABLES = "arn:aws:dynamodb:us-east-1:123456789012:table"
GROUPS = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup"
EC2 = "arn:aws:ec2:us-east-1:123456789012"


def key(record_id: str) -> dict[str, Any]:
    return {"id": {"S": record_id}}


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
            line("dynamodb", "GetItem", {"TableName": "t", "Key": key("membership")}),
            "dynamodb:GetItem",
            f"{TABLES}/t",
            ("membership",),
        ),
        (
            line("dynamodb", "BatchGetItem", {"RequestItems": {"t": {"Keys": [key("membership"), key("AROA:i-2")]}}}),
            "dynamodb:BatchGetItem",
            f"{TABLES}/t",
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
    (request,) = to_requests(found)
    assert (request.action, request.resource, request.user_id) == (action, resource, "AROA:i-1")
    assert request.context.get(LEADING_KEYS) == keys


def test_everybody_may_ask_who_they_are() -> None:
    assert to_requests(line("sts", "GetCallerIdentity")) == ()


def put(record_id: str, table: str = "t") -> dict[str, Any]:
    return {"Put": {"TableName": table, "Key": key(record_id)}}


def transaction(*items: dict[str, Any]) -> dict[str, Any]:
    return line("dynamodb", "TransactWriteItems", {"TransactItems": list(items)})


@pytest.mark.parametrize("kind", ["ConditionCheck", "Delete", "Put", "Update"])
def test_transaction_needs_what_each_item_needs_alone(kind: str) -> None:
    other = {kind: {"TableName": "t2", "Key": key("generation")}}
    found = [(each.action, each.resource, each.context) for each in to_requests(transaction(put("membership"), other))]
    assert found == [
        ("dynamodb:PutItem", f"{TABLES}/t", {LEADING_KEYS: ("membership",)}),
        (f"dynamodb:{kind}Item", f"{TABLES}/t2", {LEADING_KEYS: ("generation",)}),
    ]


def test_batch_needs_a_permission_for_each_table() -> None:
    batch = {"t": {"Keys": [key("membership")]}, "t2": {"Keys": [key("generation")]}}
    requests = to_requests(line("dynamodb", "BatchGetItem", {"RequestItems": batch}))
    assert [(each.resource, each.context[LEADING_KEYS]) for each in requests] == [
        (f"{TABLES}/t", ("membership",)),
        (f"{TABLES}/t2", ("generation",)),
    ]


NAMED = {"AutoScalingGroupName": "of-workers", "InstanceId": "i-1"}


@pytest.mark.parametrize(
    ("action", "named", "known", "resource"),
    [
        ("SetInstanceHealth", {"InstanceId": "i-1"}, f"{GROUPS}:6e1d:autoScalingGroupName/of-workers", None),
        ("SetInstanceHealth", {"InstanceId": "i-1"}, None, f"{GROUPS}:*:autoScalingGroupName/*"),
        ("CompleteLifecycleAction", NAMED, f"{GROUPS}:6e1d:autoScalingGroupName/of-workers", None),
        ("RecordLifecycleActionHeartbeat", NAMED, f"{GROUPS}:6e1d:autoScalingGroupName/of-workers", None),
        ("CompleteLifecycleAction", NAMED, None, f"{GROUPS}:*:autoScalingGroupName/of-workers"),
    ],
)
def test_call_about_an_instance_is_a_call_on_its_group(
    action: str, named: dict[str, str], known: str | None, resource: str | None
) -> None:
    found = line("autoscaling", action, named) | {"looked_up": {"group_arn": known}}
    (request,) = to_requests(found)
    assert (request.action, request.resource) == (f"autoscaling:{action}", resource or known)


def address_to(instance_id: str, tags: dict[str, str], **named: str) -> dict[str, Any]:
    resources = {"AllocationId": "eipalloc-1", "InstanceId": instance_id, **named}
    return line("ec2", "AssociateAddress", resources) | {"looked_up": {"instance_tags": tags}}


@pytest.mark.parametrize(
    ("tags", "context"),
    [
        ({"aws:autoscaling:groupName": "of-masters", "Name": "a"}, {GROUP_OF_INSTANCE: ("of-masters",)}),
        ({"Name": "of-masters"}, {}),
    ],
)
def test_address_and_instance_are_asked_about(tags: dict[str, str], context: dict[str, tuple[str, ...]]) -> None:
    found = [(each.action, each.resource, each.context) for each in to_requests(address_to("i-1", tags))]
    assert found == [
        ("ec2:AssociateAddress", f"{EC2}:elastic-ip/eipalloc-1", {}),
        ("ec2:AssociateAddress", f"{EC2}:instance/i-1", context),
    ]


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
        address_to("i-1", {}, NetworkInterfaceId="eni-1"),
        line("ec2", "AssociateAddress", {"PublicIp": "198.51.100.1", "InstanceId": "i-1"}),
        line("ssm", "GetParameter"),
    ],
)
def test_fails_when_a_call_is_not_described(found: dict[str, Any]) -> None:
    with pytest.raises(UnknownCallError):
        to_requests(found)


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
    assert [not call.refused for call in read_calls(log)] == [True, True, False]


def granting(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"p": {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **each} for each in statements]}}


TO_THE_MASTER = (
    {"Action": "ec2:AssociateAddress", "Resource": f"{EC2}:elastic-ip/eipalloc-1"},
    {
        "Action": "ec2:AssociateAddress",
        "Resource": f"{EC2}:instance/*",
        "Condition": {"StringEquals": {GROUP_OF_INSTANCE: "of-masters"}},
    },
)


def of_group(name: str) -> dict[str, str]:
    return {"aws:autoscaling:groupName": name}


@pytest.mark.parametrize(
    ("statements", "call", "refused"),
    [
        (TO_THE_MASTER, address_to("i-1", of_group("of-masters")), []),
        (TO_THE_MASTER, address_to("i-1", of_group("of-workers")), ["instance/i-1"]),
        (TO_THE_MASTER, address_to("i-1", {}), ["instance/i-1"]),
        (
            TO_THE_MASTER,
            address_to("i-1", of_group("of-masters"), AllocationId="eipalloc-2"),
            ["elastic-ip/eipalloc-2"],
        ),
        (TO_THE_MASTER[:1], address_to("i-1", of_group("of-masters")), ["instance/i-1"]),
        (TO_THE_MASTER[1:], address_to("i-1", of_group("of-masters")), ["elastic-ip/eipalloc-1"]),
    ],
)
def test_address_needs_both_permissions(
    tmp_path: Path, statements: tuple[dict[str, Any], ...], call: dict[str, Any], refused: list[str]
) -> None:
    call["caller"]["policies"] = granting(*statements)
    (found,) = read_calls(write(tmp_path / "requests.jsonl", call))
    assert [request.resource.rsplit(":", 1)[1] for request in found.refused] == refused


def test_one_item_that_is_not_allowed_refuses_the_transaction(tmp_path: Path) -> None:
    keys = {"ForAllValues:StringEquals": {LEADING_KEYS: ["membership", "generation"]}}
    allowed = granting({"Action": "dynamodb:PutItem", "Resource": f"{TABLES}/t", "Condition": keys})
    first = transaction(put("membership"), put("generation"))
    first["caller"]["policies"] = allowed
    log = write(
        tmp_path / "requests.jsonl",
        first,
        transaction(put("membership"), put("AROA:i-2")),
        transaction(put("membership"), put("generation", table="t2")),
        transaction(put("membership"), {"Delete": put("generation")["Put"]}),
    )
    assert [len(call.refused) for call in read_calls(log)] == [0, 1, 1, 1]


def test_policies_of_a_role_are_not_anothers(tmp_path: Path) -> None:
    log = write(
        tmp_path / "requests.jsonl",
        line("ec2", "DescribeInstances", policies=policy("ec2:*")),
        line("ec2", "DescribeInstances", role_arn=f"{ROLE}-2", policies=policy("s3:*")),
    )
    assert [not call.refused for call in read_calls(log)] == [True, False]


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
    assert [not call.refused for call in read_calls(log)] == [True, False]
