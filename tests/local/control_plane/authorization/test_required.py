"""Test which permissions real clients' calls require, as the server logs them."""

from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

import pytest

from tests.local.control_plane.authorization.recorded_calls import RecordedCalls
from tests.local.control_plane.harness import REGION, Aws, Group, Stacks
from tests.local.control_plane.templates import cluster, group, resource

ACCOUNT = "123456789012"
TABLES = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table"
STACKS = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack"
LOGS = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group"
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
GROUPS = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup"
KEYS = "dynamodb:LeadingKeys"
GROUP_OF_INSTANCE = "aws:ResourceTag/aws:autoscaling:groupName"

ActionOnResource = tuple[str, str]


@pytest.fixture(scope="module")
def node(aws: Aws) -> Iterator[RecordedCalls]:
    made = RecordedCalls(aws)
    yield made
    made.role.end()


@pytest.fixture(scope="module")
def tables(aws: Aws) -> Iterator[None]:
    dynamodb = aws.client("dynamodb")
    for name in ("t", "t2"):
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    yield
    for name in ("t", "t2"):
        dynamodb.delete_table(TableName=name)


def pairs(found: list[dict[str, Any]]) -> list[ActionOnResource]:
    return [(permission["action"], permission["resource"]) for permission in found]


@pytest.mark.parametrize(
    ("call", "action", "resource"),
    [
        (lambda s3: s3.get_object(Bucket="b-1", Key="some/key.zip"), "GetObject", "b-1/some/key.zip"),
        (lambda s3: s3.head_object(Bucket="b-1", Key="k"), "GetObject", "b-1/k"),
        (lambda s3: s3.get_object(Bucket="b-1", Key="k", PartNumber=1), "GetObject", "b-1/k"),
        (lambda s3: s3.get_object(Bucket="b-1", Key="k", VersionId="v"), "GetObjectVersion", "b-1/k"),
        (lambda s3: s3.put_object(Bucket="b-1", Key="k", Body=b""), "PutObject", "b-1/k"),
        (lambda s3: s3.create_multipart_upload(Bucket="b-1", Key="k"), "PutObject", "b-1/k"),
        (
            lambda s3: s3.upload_part(Bucket="b-1", Key="k", UploadId="u", PartNumber=1, Body=b""),
            "PutObject",
            "b-1/k",
        ),
        (lambda s3: s3.abort_multipart_upload(Bucket="b-1", Key="k", UploadId="u"), "AbortMultipartUpload", "b-1/k"),
        (lambda s3: s3.delete_object(Bucket="b-1", Key="k"), "DeleteObject", "b-1/k"),
        (lambda s3: s3.delete_object(Bucket="b-1", Key="k", VersionId="v"), "DeleteObjectVersion", "b-1/k"),
        (lambda s3: s3.put_object_acl(Bucket="b-1", Key="k", ACL="public-read"), "PutObjectAcl", "b-1/k"),
        (lambda s3: s3.list_objects_v2(Bucket="b-1"), "ListBucket", "b-1"),
        (lambda s3: s3.list_object_versions(Bucket="b-1"), "ListBucketVersions", "b-1"),
        (lambda s3: s3.head_bucket(Bucket="b-1"), "ListBucket", "b-1"),
        (
            lambda s3: s3.put_bucket_versioning(Bucket="b-1", VersioningConfiguration={"Status": "Suspended"}),
            "PutBucketVersioning",
            "b-1",
        ),
        (lambda s3: s3.delete_bucket(Bucket="b-1"), "DeleteBucket", "b-1"),
    ],
)
def test_s3_calls_need_their_permissions(
    node: RecordedCalls, call: Callable[[Any], object], action: str, resource: str
) -> None:
    assert pairs(node.required("s3", call)) == [(f"s3:{action}", f"arn:aws:s3:::{resource}")]


def test_prefix_of_a_listing_is_a_condition_key(node: RecordedCalls) -> None:
    (permission,) = node.required("s3", lambda s3: s3.list_objects_v2(Bucket="b-1", Prefix="a/"))
    assert permission["context"]["s3:prefix"] == ["a/"]


def test_each_object_of_a_deletion_needs_a_permission(node: RecordedCalls) -> None:
    objects = [{"Key": "a"}, {"Key": "b", "VersionId": "v"}]
    found = node.required("s3", lambda s3: s3.delete_objects(Bucket="b-1", Delete={"Objects": objects}))
    assert pairs(found) == [
        ("s3:DeleteObject", "arn:aws:s3:::b-1/a"),
        ("s3:DeleteObjectVersion", "arn:aws:s3:::b-1/b"),
    ]


def test_copy_needs_read_permission_for_its_source(node: RecordedCalls) -> None:
    found = node.required("s3", lambda s3: s3.copy_object(Bucket="b-1", Key="k", CopySource="b-2/a b"))
    assert pairs(found) == [("s3:PutObject", "arn:aws:s3:::b-1/k"), ("s3:GetObject", "arn:aws:s3:::b-2/a b")]


def key(record_id: str) -> dict[str, Any]:
    return {"id": {"S": record_id}}


@pytest.mark.parametrize(
    ("call", "action", "keys"),
    [
        (lambda db: db.get_item(TableName="t", Key=key("a")), "GetItem", ["a"]),
        (lambda db: db.get_item(TableName=f"{TABLES}/t", Key=key("a")), "GetItem", ["a"]),
        (lambda db: db.put_item(TableName="t", Item=key("a")), "PutItem", ["a"]),
        (lambda db: db.update_item(TableName="t", Key=key("a"), UpdateExpression="REMOVE b"), "UpdateItem", ["a"]),
        (lambda db: db.delete_item(TableName="t", Key=key("a")), "DeleteItem", ["a"]),
        (
            lambda db: db.batch_write_item(RequestItems={"t": [{"DeleteRequest": {"Key": key("a")}}]}),
            "BatchWriteItem",
            ["a"],
        ),
        (
            lambda db: db.query(
                TableName="t", KeyConditionExpression="id = :v", ExpressionAttributeValues={":v": {"S": "a"}}
            ),
            "Query",
            ["a"],
        ),
        (lambda db: db.scan(TableName="t"), "Scan", None),
        (lambda db: db.describe_table(TableName="t"), "DescribeTable", None),
    ],
)
@pytest.mark.usefixtures("tables")
def test_item_calls_need_their_permissions(
    node: RecordedCalls, call: Callable[[Any], object], action: str, keys: list[str] | None
) -> None:
    (permission,) = node.required("dynamodb", call)
    assert (permission["action"], permission["resource"]) == (f"dynamodb:{action}", f"{TABLES}/t")
    assert permission["context"].get(KEYS) == keys


@pytest.mark.usefixtures("tables")
def test_batch_needs_a_permission_for_each_table(node: RecordedCalls) -> None:
    batch = {"t": {"Keys": [key("membership"), key("AROA:i-2")]}, "t2": {"Keys": [key("generation")]}}
    found = node.required("dynamodb", lambda db: db.batch_get_item(RequestItems=batch))
    assert [(permission["resource"], permission["context"][KEYS]) for permission in found] == [
        (f"{TABLES}/t", ["membership", "AROA:i-2"]),
        (f"{TABLES}/t2", ["generation"]),
    ]


def _item(kind: str, table: str) -> dict[str, Any]:
    if kind == "Put":
        return {"TableName": table, "Item": key("membership")}
    found: dict[str, Any] = {"TableName": table, "Key": key("membership")}
    if kind == "ConditionCheck":
        found["ConditionExpression"] = "attribute_exists(id)"
    if kind == "Update":
        found["UpdateExpression"] = "REMOVE a"
    return found


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("kind", ["ConditionCheck", "Delete", "Put", "Update"])
def test_transaction_needs_what_each_item_needs_alone(node: RecordedCalls, kind: str) -> None:
    items = [{"Put": {"TableName": "t", "Item": key("generation")}}, {kind: _item(kind, "t2")}]
    found = node.required("dynamodb", lambda db: db.transact_write_items(TransactItems=items))
    assert [(permission["action"], permission["resource"], permission["context"][KEYS]) for permission in found] == [
        ("dynamodb:PutItem", f"{TABLES}/t", ["generation"]),
        (f"dynamodb:{kind}Item", f"{TABLES}/t2", ["membership"]),
    ]


@pytest.mark.parametrize(("name", "expected"), [(f"{STACKS}/a/0-1", f"{STACKS}/a/0-1"), ("a", f"{STACKS}/a/*")])
def test_stack_is_named_by_id_or_with_a_star(node: RecordedCalls, name: str, expected: str) -> None:
    signal = {"LogicalResourceId": "x", "UniqueId": "i-1", "Status": "SUCCESS"}
    found = node.required("cloudformation", lambda stacks: stacks.signal_resource(StackName=name, **signal))
    assert pairs(found) == [("cloudformation:SignalResource", expected)]


def test_log_stream_calls_need_their_permissions(node: RecordedCalls) -> None:
    events = [{"timestamp": 1, "message": "x"}]
    for call, action, stream in (
        (lambda logs: logs.create_log_stream(logGroupName="/g", logStreamName="i-1"), "CreateLogStream", "i-1"),
        (
            lambda logs: logs.put_log_events(logGroupName="/g", logStreamName="i-1", logEvents=events),
            "PutLogEvents",
            "i-1",
        ),
        (lambda logs: logs.describe_log_streams(logGroupName="/g"), "DescribeLogStreams", ""),
    ):
        assert pairs(node.required("logs", call)) == [(f"logs:{action}", f"{LOGS}:/g:log-stream:{stream}")]


@pytest.mark.parametrize(
    ("service", "call", "action"),
    [
        ("ec2", lambda ec2: ec2.describe_instances(), "ec2:DescribeInstances"),
        ("autoscaling", lambda groups: groups.describe_auto_scaling_groups(), "autoscaling:DescribeAutoScalingGroups"),
    ],
)
def test_calls_without_resource_type_need_a_star(
    node: RecordedCalls, service: str, call: Callable[[Any], object], action: str
) -> None:
    assert pairs(node.required(service, call)) == [(action, "*")]


def test_get_caller_identity_needs_no_permission(node: RecordedCalls) -> None:
    assert node.required("sts", lambda sts: sts.get_caller_identity()) == []


def test_role_is_assumed_by_its_arn(node: RecordedCalls) -> None:
    arn = f"arn:aws:iam::{ACCOUNT}:role/other"
    found = node.required("sts", lambda sts: sts.assume_role(RoleArn=arn, RoleSessionName="xx"))
    assert pairs(found) == [("sts:AssumeRole", arn)]


@pytest.fixture
def groups(aws: Aws, stacks: Stacks) -> Iterator[dict[str, Group]]:
    """Create two groups of one member each; end the member that a test detached, which would block the deletion."""
    stacks.create(cluster(Masters=group(1), Workers=group(1)))
    made = {name: Group(aws=aws, name=stacks.physical_id(name)) for name in ("Masters", "Workers")}
    members = [member for made_group in made.values() for member in made_group.members()]
    yield made
    aws.client("ec2").terminate_instances(InstanceIds=members)


def test_call_about_an_instance_is_a_call_on_its_group(node: RecordedCalls, groups: dict[str, Group]) -> None:
    workers = groups["Workers"]
    (member,) = workers.members()
    (found,) = node.required("autoscaling", lambda g: g.set_instance_health(InstanceId=member, HealthStatus="Healthy"))
    assert found["resource"] == workers.described()["AutoScalingGroupARN"]
    for service in ("aws", "autoscaling"):
        assert found["context"][f"{service}:ResourceTag/cluster"] == ["test"]
    workers.autoscaling.detach_instances(
        AutoScalingGroupName=workers.name, InstanceIds=[member], ShouldDecrementDesiredCapacity=True
    )
    (found,) = node.required("autoscaling", lambda g: g.set_instance_health(InstanceId=member, HealthStatus="Healthy"))
    assert found["resource"] == f"{GROUPS}:*:autoScalingGroupName/*"


def test_named_group_counts_and_not_the_instances(node: RecordedCalls, groups: dict[str, Group]) -> None:
    (worker,) = groups["Workers"].members()
    masters = groups["Masters"]
    for name, expected in (
        (masters.name, masters.described()["AutoScalingGroupARN"]),
        ("none", f"{GROUPS}:*:autoScalingGroupName/none"),
    ):
        action = {"LifecycleHookName": "drain", "InstanceId": worker, "LifecycleActionResult": "CONTINUE"}
        call = methodcaller("complete_lifecycle_action", AutoScalingGroupName=name, **action)
        found = node.required("autoscaling", call)
        assert pairs(found) == [("autoscaling:CompleteLifecycleAction", expected)]


def test_launch_instances_needs_the_group_and_a_fleet(node: RecordedCalls, groups: dict[str, Group]) -> None:
    workers = groups["Workers"]
    call = methodcaller("launch_instances", AutoScalingGroupName=workers.name, RequestedCapacity=1)
    assert pairs(node.required("autoscaling", call)) == [
        ("autoscaling:LaunchInstances", workers.described()["AutoScalingGroupARN"]),
        ("ec2:CreateFleet", f"{EC2}:fleet/*"),
        ("ec2:DescribeLaunchTemplateVersions", "*"),
    ]


def test_associate_address_needs_permissions_for_address_and_instance(
    aws: Aws, node: RecordedCalls, groups: dict[str, Group]
) -> None:
    (member,) = groups["Masters"].members()
    allocated = aws.client("ec2").allocate_address(Domain="vpc")
    address, instance = f"{EC2}:elastic-ip/{allocated['AllocationId']}", f"{EC2}:instance/{member}"
    for named in ({"AllocationId": allocated["AllocationId"]}, {"PublicIp": allocated["PublicIp"]}):
        found = node.required("ec2", methodcaller("associate_address", InstanceId=member, **named))
        assert pairs(found) == [("ec2:AssociateAddress", address), ("ec2:AssociateAddress", instance)]
        assert found[1]["context"][GROUP_OF_INSTANCE] == [groups["Masters"].name]
    association = aws.client("ec2").describe_addresses(AllocationIds=[allocated["AllocationId"]])
    association_id = association["Addresses"][0]["AssociationId"]
    found = node.required("ec2", lambda ec2: ec2.disassociate_address(AssociationId=association_id))
    assert pairs(found) == [("ec2:DisassociateAddress", address)]
    aws.client("ec2").release_address(AllocationId=allocated["AllocationId"])


def test_log_groups_have_the_arn_that_cloudformation_gives(stacks: Stacks) -> None:
    outputs = {"Arn": {"Value": {"Fn::GetAtt": ["Group", "Arn"]}}}
    stacks.create({"Resources": {"Group": resource("Logs::LogGroup", LogGroupName="/of-a-test")}, "Outputs": outputs})
    assert stacks.outputs()["Arn"] == f"{LOGS}:/of-a-test:*"
