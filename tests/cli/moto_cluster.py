"""Describe a cluster deployed to moto, and write what its agents would write."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from bootstrap.contract import VERSION

RELEASE = f"{VERSION}:0123456789ab"
REGION = "eu-west-1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBwQ0Y3S4f0Yq4V8v0y1Q9jv8t5oQ8k8yq2hJm1m3X8k"
NETWORKS = "10.0.0.0/8,127.0.0.0/8"
"""Networks of node addresses; 127.0.0.0/8 is for the tests' own SSH servers."""


@dataclass(frozen=True, kw_only=True)
class MotoCluster:
    """A deployed cluster and its instances, in index order."""

    name: str
    table: str
    instance_ids: tuple[str, ...]


Deploy = Callable[..., MotoCluster]


def template(name: str, user: str, *, is_private: bool = False) -> str:
    table = {
        "Type": "AWS::DynamoDB::Table",
        "Properties": {
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        },
    }
    outputs = {"ClusterName": name, "ClusterTable": {"Ref": "Table"}, "LoginUser": user, "ClusterNetworks": NETWORKS}
    outputs["ClusterRelease"] = RELEASE
    outputs |= {"ClusterPrivate": "true"} if is_private else {}
    return json.dumps(
        {"Resources": {"Table": table}, "Outputs": {key: {"Value": value} for key, value in outputs.items()}}
    )


def run_instances(cluster_name: str, private: Sequence[str], public: str | None) -> tuple[str, ...]:
    ec2, count = boto3.client("ec2", region_name=REGION), len(private)
    image = ec2.register_image(Name="node")["ImageId"]
    found = ec2.run_instances(
        ImageId=image,
        MinCount=count,
        MaxCount=count,
        InstanceType="c5.large",
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "deeplearning:cluster", "Value": cluster_name}]}
        ],
    )
    ids = tuple(instance["InstanceId"] for instance in found["Instances"])
    for instance_id, address in zip(ids, private, strict=True):
        set_addresses(instance_id, private=address, public=public if instance_id == ids[0] else None)
    return ids


def set_addresses(instance_id: str, *, private: str, public: str | None) -> None:
    """Give an instance these addresses; moto chooses its own, but some tests need one that leads to their server."""
    nic = ec2_backends[DEFAULT_ACCOUNT_ID][REGION].get_instance(instance_id).nics[0]
    nic.private_ip_address, nic.public_ip = private, public


def put_membership(
    table: str,
    ids: Sequence[str],
    *,
    private: Sequence[str],
    host_keys: Sequence[str],
    version: int = 2,
    desired_nodes: int | None = None,
) -> None:
    members = [
        {
            "node_index": node_index,
            "instance_id": instance_id,
            "address": address,
            "node_type": "master" if node_index == 1 else "worker",
            "host_key": key,
            "release": RELEASE,
        }
        for node_index, (instance_id, address, key) in enumerate(zip(ids, private, host_keys, strict=True), 1)
    ]
    put_members(table, members, version=version, desired_nodes=desired_nodes)


def put_members(
    table: str,
    members: Sequence[dict[str, Any]],
    *,
    version: int = 2,
    desired_nodes: int | None = None,
    region: str = REGION,
) -> None:
    """Write a membership with these rows, valid or not."""
    boto3.client("dynamodb", region_name=region).put_item(
        TableName=table,
        Item={
            "id": {"S": "membership"},
            "version": {"N": str(version)},
            "generation": {"N": "7"},
            "desired_nodes": {"N": str(desired_nodes or len(members))},
            "members": {"S": json.dumps(members)},
        },
    )


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line that a failing command prints."""
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err.removeprefix("dlcluster: ").removesuffix("\n")
