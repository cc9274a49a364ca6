"""Test what dlcluster reads of a cluster's nodes, from the table and from EC2."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from bootstrap import contract
from bootstrap.cluster import membership
from bootstrap.cluster.table import Table
from cli.aws.nodes import (
    GONE,
    RUNNING,
    ClusterMembership,
    ClusterNode,
    Instance,
    choose_node,
    find_instances,
    missing_count,
    read_membership,
)
from cli.errors import ClusterError
from tests.bootstrap.identities import NETWORKS, instance_id, public_key
from tests.cli.moto_cluster import REGION, Deploy

MEMBERS = tuple(
    ClusterNode(
        node_index=node_index,
        instance_id=f"i-{node_index:017x}",
        address=f"10.0.0.{node_index}",
        node_type="master" if node_index == 1 else "worker",
        host_key="ssh-ed25519 A",
    )
    for node_index in (1, 2, 12)
)


@pytest.mark.parametrize(
    ("name", "node_index"),
    [
        ("master", 1),
        ("deeplearning-master", 1),
        ("demo-master", 1),
        ("1", 1),
        ("worker1", 1),
        ("deeplearning-worker1", 1),
        ("worker2", 2),
        ("2", 2),
        ("deeplearning-worker12", 12),
        ("demo-worker12", 12),
        ("i-0000000000000000c", 12),
    ],
)
def test_node_has_many_names(name: str, node_index: int) -> None:
    assert choose_node(name, MEMBERS, cluster_name="demo").node_index == node_index


def members_of(table: str) -> tuple[ClusterNode, ...]:
    client = boto3.client("dynamodb", region_name=REGION)
    return read_membership(client, table=table, networks=NETWORKS, cluster_name="demo").members


def test_agent_records_are_read_by_contract_names(deploy: Deploy) -> None:
    client = boto3.client("dynamodb", region_name=REGION)
    table = deploy().table
    client.delete_item(TableName=table, Key={contract.TABLE_KEY: {"S": contract.MEMBERSHIP_ID}})
    key, own_id = public_key(1), instance_id(1)
    member = membership.Member(node_index=1, instance_id=own_id, address="10.0.0.9", node_type="master", host_key=key)
    written = membership.Membership(generation=1, desired_nodes=5, members=(member,), master_trains=False)
    agents = Table(client, name=table, networks=NETWORKS)
    assert agents.replace_membership(agents.read_stored(), written)

    item = client.get_item(TableName=table, Key={contract.TABLE_KEY: {"S": contract.MEMBERSHIP_ID}})["Item"]
    assert item[contract.VERSION_FIELD] == {"N": str(contract.RECORD_VERSION)}
    assert item[contract.GENERATION_FIELD] == {"N": "1"}
    assert item[contract.DESIRED_NODES_FIELD] == {"N": "5"}
    (row,) = json.loads(item[contract.MEMBERS_FIELD]["S"])
    names = (
        contract.NODE_INDEX_FIELD,
        contract.INSTANCE_ID_FIELD,
        contract.ADDRESS_FIELD,
        contract.NODE_TYPE_FIELD,
        contract.HOST_KEY_FIELD,
    )
    assert [row[name] for name in names] == [1, own_id, "10.0.0.9", "master", key]
    read = ClusterNode(node_index=1, instance_id=own_id, address="10.0.0.9", node_type="master", host_key=key)
    found = read_membership(client, table=table, networks=NETWORKS, cluster_name="demo")
    assert (found.members, found.desired_nodes, found.desired_training_nodes) == ((read,), 5, 4)


def test_fields_of_a_newer_agent_are_ignored(deploy: Deploy) -> None:
    table, client = deploy().table, boto3.client("dynamodb", region_name=REGION)
    before = members_of(table)
    key = {contract.TABLE_KEY: {"S": contract.MEMBERSHIP_ID}}
    item = client.get_item(TableName=table, Key=key)["Item"]
    rows = json.loads(item[contract.MEMBERS_FIELD]["S"])
    item[contract.MEMBERS_FIELD] = {"S": json.dumps([row | {"news": 1} for row in rows])}
    client.put_item(TableName=table, Item=item)
    assert members_of(table) == before


def described(instance_ids: Sequence[str], **more: str) -> dict[str, Any]:
    instances = [
        {
            "InstanceId": instance_id,
            "InstanceType": "c5.large",
            "Placement": {"AvailabilityZone": "eu-west-1a"},
            "State": {"Code": 16, "Name": "running"},
        }
        for instance_id in instance_ids
    ]
    return {"Reservations": [{"Instances": instances}], **more}


def test_instances_are_described_in_batches_and_on_every_page() -> None:
    ids = [f"i-{number:017x}" for number in range(401)]
    ec2 = boto3.client("ec2", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(ec2) as stub:
        for chunk in (ids[:200], ids[200:400], ids[400:]):
            query: dict[str, Any] = {"Filters": [{"Name": "instance-id", "Values": chunk}]}
            stub.add_response("describe_instances", described(chunk[:150], NextToken="more"), query)
            stub.add_response("describe_instances", described(chunk[150:-1]), {**query, "NextToken": "more"})
        instances = find_instances(ec2, ids)
        stub.assert_no_pending_responses()
    assert list(instances) == ids
    gone = [instance_id for instance_id in ids if instances[instance_id] == GONE]
    assert gone == [ids[199], ids[399]]


def test_no_instances_make_no_call() -> None:
    ec2 = boto3.client("ec2", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(ec2):
        assert find_instances(ec2, []) == {}


def test_node_that_leaves_is_no_master_and_is_missing() -> None:
    leaving = replace(MEMBERS[0], draining=True)
    membership = ClusterMembership(generation=7, desired_nodes=3, members=(leaving, *MEMBERS[1:]))
    with pytest.raises(ClusterError, match="has no master now"):
        assert membership.master
    instance = Instance(instance_type="c5.large", zone="a", public_address="", state=RUNNING)
    instances = {member.instance_id: instance for member in MEMBERS}
    assert missing_count(membership, instances, desired_nodes=3) == 1
