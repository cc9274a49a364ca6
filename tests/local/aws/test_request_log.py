import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.request_log import entry
from tests.local.aws.harness import REGION, Aws, Group, Stacks
from tests.local.aws.templates import cluster, group

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


@pytest.fixture
def groups(aws: Aws, stacks: Stacks) -> Iterator[dict[str, Group]]:
    """Two of one member each; one that a test detached ends here, as it stands in the way of the stack's end."""
    stacks.create(cluster(Masters=group(1), Workers=group(1)))
    made = {name: Group(aws=aws, name=stacks.physical_id(name)) for name in ("Masters", "Workers")}
    members = [member for each in made.values() for member in each.members()]
    yield made
    aws.client("ec2").terminate_instances(InstanceIds=members)


def detach(members: Group, instance_id: str) -> None:
    members.autoscaling.detach_instances(
        AutoScalingGroupName=members.name, InstanceIds=[instance_id], ShouldDecrementDesiredCapacity=True
    )


def test_group_that_an_instance_is_in_is_noted(aws: Aws, role: dict[str, str], groups: dict[str, Group]) -> None:
    keys, workers = keys_of_session(aws, role["arn"], "i-1"), groups["Workers"]
    (member,) = workers.members()
    node = aws.client("autoscaling", **keys)
    node.set_instance_health(InstanceId=member, HealthStatus="Healthy")
    detach(workers, member)
    with pytest.raises(ClientError):
        node.set_instance_health(InstanceId=member, HealthStatus="Healthy")
    found = [line["looked_up"] for line in noted(aws, keys["aws_access_key_id"])]
    assert found == [{"group_arn": workers.described()["AutoScalingGroupARN"]}, {"group_arn": None}]


def test_named_group_counts_and_not_the_instances(aws: Aws, role: dict[str, str], groups: dict[str, Group]) -> None:
    keys = keys_of_session(aws, role["arn"], "i-1")
    (worker,) = groups["Workers"].members()
    for name in (groups["Masters"].name, "no-such-group"):
        with pytest.raises(ClientError):
            aws.client("autoscaling", **keys).complete_lifecycle_action(
                AutoScalingGroupName=name,
                LifecycleHookName="drain",
                InstanceId=worker,
                LifecycleActionResult="CONTINUE",
            )
    found = [line["looked_up"] for line in noted(aws, keys["aws_access_key_id"])]
    assert found == [{"group_arn": groups["Masters"].described()["AutoScalingGroupARN"]}, {"group_arn": None}]


def test_tags_of_an_instance_are_noted(aws: Aws, role: dict[str, str], groups: dict[str, Group]) -> None:
    keys, masters = keys_of_session(aws, role["arn"], "i-1"), groups["Masters"]
    (member,) = masters.members()
    node, ec2 = aws.client("ec2", **keys), aws.client("ec2")
    allocation = ec2.allocate_address(Domain="vpc")["AllocationId"]
    node.associate_address(AllocationId=allocation, InstanceId=member)
    detach(masters, member)
    association = node.associate_address(AllocationId=allocation, InstanceId=member)["AssociationId"]
    ec2.disassociate_address(AssociationId=association)
    ec2.release_address(AllocationId=allocation)
    first, second = (line["looked_up"]["instance_tags"] for line in noted(aws, keys["aws_access_key_id"]))
    assert first.items() >= {"aws:autoscaling:groupName": masters.name, "Name": "node", "cluster": "test"}.items()
    assert second == {name: value for name, value in first.items() if name != "aws:autoscaling:groupName"}


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


def test_each_item_of_a_transaction_is_noted_without_its_contents() -> None:
    one, other = {"id": {"S": "membership"}}, {"id": {"S": "generation"}}
    items: list[dict[str, Any]] = [
        {"Put": {"TableName": "table", "Item": {**one, "members": {"S": "x"}}, "ConditionExpression": "a = :b"}},
        {"Delete": {"TableName": "table-2", "Key": other}},
    ]
    body = json.dumps({"TransactItems": items}).encode()
    found = entry({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.TransactWriteItems"}, body, NOW)
    assert found["resources"] == {
        "TransactItems": [
            {"Put": {"TableName": "table", "Key": one}},
            {"Delete": {"TableName": "table-2", "Key": other}},
        ]
    }


def test_malformed_request_is_noted_too() -> None:
    found = entry({"HTTP_X_AMZ_TARGET": "DynamoDB_20120810.GetItem"}, b"{", NOW)
    assert (found["action"], found["resources"]) == ("GetItem", {})
