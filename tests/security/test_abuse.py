"""Abuse every Allow of each role with the role's own credentials, as an attacker on a node could.

Each test shows what is refused, and ends with what the role still allows. For how that remainder is handled, see
docs/security.md and docs/decisions/006-what-a-node-may-do.md.
"""

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.bootstrap.identities import public_key
from tests.security.cluster import ABUSED, BOTH, Node, RoleCluster, abuses, refused
from tests.security.user_resources import TOOLKIT_BUCKET, Deploy

TABLE = "dynamodb:table/TABLE"
SHARED = ("membership", "generation", "mxnet", "pause")
"""Records that all nodes read and only the master writes."""


@pytest.mark.parametrize("node_type", BOTH)
def test_every_permission_of_each_role_has_a_test_of_its_abuse(cluster: RoleCluster, node_type: str) -> None:
    assert set(cluster.node(node_type).grants) == ABUSED[node_type]


@abuses(BOTH, "s3:GetObject on s3:::cdk-hnb659fds-assets/BUNDLE")
def test_node_reads_only_the_bundle_in_the_toolkit_bucket(node: Node) -> None:
    s3 = node.client("s3")
    refused(s3.get_object, Bucket=TOOLKIT_BUCKET, Key="other.zip")
    refused(s3.put_object, Bucket=TOOLKIT_BUCKET, Key=node.cluster.bundle, Body=b"mine")
    refused(s3.list_objects_v2, Bucket=TOOLKIT_BUCKET)
    assert s3.get_object(Bucket=TOOLKIT_BUCKET, Key=node.cluster.bundle)["Body"].read() == b"bundle"


@abuses(BOTH, "s3:GetObject on s3:::cdk-hnb659fds-assets/SETUP")
def test_node_reads_the_setup_that_root_runs_and_cannot_replace_it(node: Node) -> None:
    s3, setup = node.client("s3"), node.cluster.setup
    refused(s3.put_object, Bucket=TOOLKIT_BUCKET, Key=setup, Body=b"mine")
    refused(s3.delete_object, Bucket=TOOLKIT_BUCKET, Key=setup)
    refused(s3.get_object, Bucket=TOOLKIT_BUCKET, Key=setup, VersionId="1")
    assert s3.get_object(Bucket=TOOLKIT_BUCKET, Key=setup)["Body"].read() == b"setup"


@abuses(BOTH, "logs:CreateLogStream on logs:log-group:LOGS:*", "logs:PutLogEvents on logs:log-group:LOGS:*")
def test_node_writes_into_streams_of_others_and_neither_reads_nor_deletes_one(node: Node) -> None:
    logs, group, other = node.client("logs"), node.cluster.names["LOGS"], f"i-other-{node.type}"
    events = [{"timestamp": int(time.time() * 1000), "message": "all is well"}]
    refused(logs.get_log_events, logGroupName=group, logStreamName=other)
    refused(logs.filter_log_events, logGroupName=group)
    refused(logs.delete_log_stream, logGroupName=group, logStreamName=other)
    refused(logs.delete_log_group, logGroupName=group)
    refused(logs.create_log_stream, logGroupName=f"{group}-2", logStreamName=other)
    logs.create_log_stream(logGroupName=group, logStreamName=other)
    logs.put_log_events(logGroupName=group, logStreamName=other, logEvents=events)


@pytest.fixture(params=BOTH)
def young_node(request: pytest.FixtureRequest, deploy: Deploy) -> Node:
    """Return a node of a cluster that is still being created."""
    return deploy(f"young-{request.param}").node(request.param)


@abuses(BOTH, "cloudformation:SignalResource on STACK")
def test_node_signals_for_others_while_the_stack_is_created(young_node: Node, cluster: RoleCluster) -> None:
    young, cloudformation = young_node.cluster, young_node.client("cloudformation")
    groups = [young.logical_id("AWS::AutoScaling::AutoScalingGroup", part) for part in ("Master", "Worker")]
    signal = {"LogicalResourceId": groups[0], "UniqueId": "i-somebody"}
    refused(cloudformation.signal_resource, StackName=cluster.names["STACK"], Status="FAILURE", **signal)
    # The role names the stack's ID, which a name without it does not match: docs/aws-truth.md 2.5.
    refused(cloudformation.signal_resource, StackName=young.name, Status="FAILURE", **signal)
    refused(cloudformation.delete_stack, StackName=young.names["STACK"])
    refused(cloudformation.describe_stacks, StackName=young.names["STACK"])
    cloudformation.signal_resource(StackName=young.names["STACK"], Status="SUCCESS", **signal)
    assert ("CREATE_COMPLETE", "") in young.stacks.events(groups[0], young.name)
    cloudformation.signal_resource(
        StackName=young.names["STACK"], LogicalResourceId=groups[1], UniqueId="i-somebody", Status="FAILURE"
    )
    assert young.stacks.status(young.name).startswith("ROLLBACK")


def test_no_node_can_allow_an_address(node: Node) -> None:
    ec2, allowed = node.client("ec2"), node.cluster.logical_id("AWS::EC2::PrefixList", "AllowList")
    named = {"PrefixListId": node.cluster.stacks.physical_id(allowed, node.cluster.name)}
    refused(ec2.modify_managed_prefix_list, AddEntries=[{"Cidr": "203.0.113.9/32"}], **named)
    refused(ec2.get_managed_prefix_list_entries, **named)


def test_stack_that_is_complete_takes_no_signal(node: Node) -> None:
    cloudformation = node.client("cloudformation")
    group = node.cluster.logical_id("AWS::AutoScaling::AutoScalingGroup", "Worker")
    with pytest.raises(ClientError, match="cannot be signaled"):
        cloudformation.signal_resource(
            StackName=node.cluster.names["STACK"], LogicalResourceId=group, UniqueId="i-1", Status="FAILURE"
        )


def record(record_id: str, **fields: str) -> dict[str, Any]:
    return {"id": {"S": record_id}, **{name: {"S": value} for name, value in fields.items()}}


def records(node: Node) -> dict[str, str]:
    """Return the keys of all kinds of records, and of keys that resemble the node's own, by a description."""
    own, cluster = node.record_id(), node.cluster
    masters, workers = cluster.members(cluster.group("master")), cluster.members(cluster.group("worker"))
    roles = {node_type: cluster.node(node_type).role["RoleId"] for node_type in BOTH}
    keys = {
        "its own": own,
        "the other role's, of its own instance": own.replace(roles[node.type], roles[other_type(node)]),
        "a future instance's": node.record_id("i-0123456789abcdef0"),
        "its own in capitals": own.upper(),
        "its own and more": f"{own}0",
        "its role's": roles[node.type],
        **{f"a master's: {name}": f"{roles['master']}:{name}" for name in masters},
        **{f"a worker's: {name}": f"{roles['worker']}:{name}" for name in workers},
        **{name: name for name in SHARED},
        "a record of another kind": "anything",
    }
    return {label: key for label, key in keys.items() if label == "its own" or key != own}


def other_type(node: Node) -> str:
    return "worker" if node.type == "master" else "master"


def stored(node: Node) -> dict[str, Any]:
    """Return every record in the table by its key, as only the account's owner can read them."""
    items = node.cluster.aws.client("dynamodb").scan(TableName=node.cluster.names["TABLE"])["Items"]
    return {item["id"]["S"]: item for item in items}


WRITABLE = {"worker": {"its own"}, "master": {"its own", *SHARED}}


@abuses(BOTH, f"dynamodb:PutItem on {TABLE}, dynamodb:LeadingKeys ${{aws:userid}}")
def test_each_role_writes_these_records_and_no_others(node: Node) -> None:
    dynamodb, table, before = node.client("dynamodb"), node.cluster.names["TABLE"], stored(node)
    # A record as its owner would write it, because only the key decides.
    lie = {"version": {"N": "2"}, "host_key": {"S": public_key("an attacker's")}, "draining": {"BOOL": True}}
    written = {}
    for label, key in records(node).items():
        item = {**record(key, instance_id=node.instance_id, node_type="master"), **lie}
        if label in WRITABLE[node.type]:
            dynamodb.put_item(TableName=table, Item=item)
            written[key] = item
        else:
            refused(dynamodb.put_item, TableName=table, Item=item)
    assert stored(node) == before | written


def test_no_other_call_writes_a_record(node: Node) -> None:
    dynamodb, table, before = node.client("dynamodb"), node.cluster.names["TABLE"], stored(node)
    own, other = node.record_id(), node.record_id("i-0123456789abcdef0")
    put = [{"Put": {"TableName": table, "Item": record(key)}} for key in (own, other)]
    refused(dynamodb.transact_write_items, TransactItems=put)
    refused(dynamodb.batch_write_item, RequestItems={table: [{"PutRequest": {"Item": record(own)}}]})
    for key in (own, *SHARED):
        refused(dynamodb.update_item, TableName=table, Key=record(key), UpdateExpression="REMOVE x")
        refused(dynamodb.delete_item, TableName=table, Key=record(key))
        refused(dynamodb.execute_statement, Statement=f"DELETE FROM \"{table}\" WHERE id='{key}'")
    refused(dynamodb.put_item, TableName=f"{table}-2", Item=record(own))
    assert stored(node) == before


@abuses(
    ("worker",),
    *(f"dynamodb:GetItem on {TABLE}, dynamodb:LeadingKeys {name}" for name in SHARED),
)
def test_worker_reads_the_membership_and_no_node_record(worker: Node) -> None:
    dynamodb, table = worker.client("dynamodb"), worker.cluster.names["TABLE"]
    for record_id in (worker.record_id(), worker.record_id("i-0123456789abcdef0")):
        refused(dynamodb.get_item, TableName=table, Key=record(record_id))
    refused(dynamodb.batch_get_item, RequestItems={table: {"Keys": [record("membership")]}})
    refused(dynamodb.scan, TableName=table)
    for name in SHARED:
        dynamodb.get_item(TableName=table, Key=record(name))


@abuses(("master",), f"dynamodb:GetItem on {TABLE}", f"dynamodb:BatchGetItem on {TABLE}")
def test_master_reads_every_record_whose_key_it_knows(master: Node) -> None:
    dynamodb, table = master.client("dynamodb"), master.cluster.names["TABLE"]
    key = record(master.cluster.node("worker").record_id())
    refused(dynamodb.scan, TableName=table)
    refused(dynamodb.get_item, TableName=f"{table}-2", Key=key)
    dynamodb.get_item(TableName=table, Key=key)
    dynamodb.batch_get_item(RequestItems={table: {"Keys": [key]}})


@abuses(
    ("master",),
    *(f"dynamodb:PutItem on {TABLE}, dynamodb:LeadingKeys {name}" for name in SHARED),
)
def test_master_can_write_any_membership_but_cannot_impersonate_a_worker(master: Node) -> None:
    dynamodb, table = master.client("dynamodb"), master.cluster.names["TABLE"]
    refused(dynamodb.put_item, TableName=table, Item=record(master.cluster.node("worker").record_id()))
    refused(dynamodb.delete_item, TableName=table, Key=record("membership"))
    refused(dynamodb.delete_table, TableName=table)
    put = [{"Put": {"TableName": table, "Item": record(key)}} for key in SHARED]
    dynamodb.transact_write_items(TransactItems=put)


@abuses(("master",), "ec2:DescribeInstances on *", "autoscaling:DescribeAutoScalingGroups on *")
def test_master_sees_all_instances_of_the_region_and_ends_none(master: Node) -> None:
    ec2, autoscaling = master.client("ec2"), master.client("autoscaling")
    worker = master.cluster.node("worker").instance_id
    for command in (ec2.terminate_instances, ec2.stop_instances, ec2.reboot_instances):
        refused(command, InstanceIds=[worker])
    refused(ec2.describe_instance_attribute, InstanceId=worker, Attribute="userData")
    refused(ec2.run_instances, ImageId="ami-0123456789abcdef0", MinCount=1, MaxCount=1)
    refused(autoscaling.update_auto_scaling_group, AutoScalingGroupName=master.cluster.group("worker"), MaxSize=99)
    reservations = ec2.describe_instances()["Reservations"]
    assert worker in [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]
    assert autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]


def test_worker_sees_no_instances(worker: Node) -> None:
    refused(worker.client("ec2").describe_instances)
    refused(worker.client("autoscaling").describe_auto_scaling_groups)


@abuses(
    ("master",),
    "ec2:AssociateAddress on ec2:elastic-ip/ADDRESS",
    "ec2:AssociateAddress on ec2:instance/*, aws:autoscaling:groupName OWN-GROUP",
)
def test_master_can_associate_only_its_own_address(master: Node) -> None:
    ec2, own = master.client("ec2"), master.cluster.names["ADDRESS"]
    other = master.cluster.aws.client("ec2").allocate_address(Domain="vpc")["AllocationId"]
    worker = master.cluster.node("worker").instance_id
    refused(ec2.associate_address, AllocationId=own, InstanceId=worker)
    refused(ec2.associate_address, AllocationId=other, InstanceId=master.instance_id)
    refused(ec2.associate_address, AllocationId=own, NetworkInterfaceId="eni-0123456789abcdef0")
    association = ec2.associate_address(AllocationId=own, InstanceId=master.instance_id)["AssociationId"]
    refused(ec2.disassociate_address, AssociationId=association)


def test_worker_takes_no_address(worker: Node) -> None:
    address = worker.cluster.names["ADDRESS"]
    refused(worker.client("ec2").associate_address, AllocationId=address, InstanceId=worker.instance_id)


@abuses(("master",), "cloudformation:DescribeStackResource on STACK")
def test_master_sees_the_resources_of_its_own_stack_by_name_and_no_others(master: Node) -> None:
    # It learns the physical names of its own stack's parts, most of which it already has.
    stack, cloudformation = master.cluster.names["STACK"], master.client("cloudformation")
    resource = next(name for name in master.cluster.template["Resources"] if "SharedStorageFileSystem" in name)
    cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId=resource)
    other = stack.replace(":stack/", ":stack/other-")
    refused(cloudformation.describe_stack_resource, StackName=other, LogicalResourceId=resource)
    refused(cloudformation.describe_stack_resources, StackName=stack)
    refused(cloudformation.get_template, StackName=stack)


def test_worker_sees_no_resources_of_the_stack(worker: Node) -> None:
    stack = worker.cluster.names["STACK"]
    refused(worker.client("cloudformation").describe_stack_resource, StackName=stack, LogicalResourceId="Any")


def test_no_node_takes_another_role(node: Node) -> None:
    for node_type in BOTH:
        role = node.cluster.node(node_type).role["Arn"]
        refused(node.client("sts").assume_role, RoleArn=role, RoleSessionName="i-0123456789abcdef0")
