import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import click
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.server import ThreadedMotoServer

from bootstrap.contract import VERSION
from tests.cli.json_page import undocumented_keys
from tests.service_models import shared_models

RELEASE = f"{VERSION}:0123456789ab"
REGION = "eu-west-1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBwQ0Y3S4f0Yq4V8v0y1Q9jv8t5oQ8k8yq2hJm1m3X8k"
NETWORKS = "10.0.0.0/8,127.0.0.0/8"
"""Networks of node addresses; 127.0.0.0/8 is for the tests' own SSH servers."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A deployed cluster and its instances, in index order."""

    name: str
    table: str
    instance_ids: tuple[str, ...]


Deploy = Callable[..., Fleet]


@pytest.fixture(autouse=True, scope="session")
def _shared_models() -> Iterator[None]:
    with shared_models():
        yield


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty home, without the user's own .cdk.json."""
    directory = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture(autouse=True)
def _documented_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when a command prints a key that docs/dlcluster-json.md does not name for it."""

    def dumps(document: dict[str, Any], **options: Any) -> str:
        command = click.get_current_context().command.name or ""
        assert {*undocumented_keys(command, document)} == set()
        return json.dumps(document, **options)

    monkeypatch.setattr("cli.output.json", SimpleNamespace(dumps=dumps))


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://localhost:{port}"
    server.stop()


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Empty the account, and return the variables that lead to it."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        # A thousand images, which every reset would read and every query would return.
        "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    }
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    moto_api_backend.reset()
    yield variables
    moto_api_backend.reset()


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


@pytest.fixture
def deploy(aws: dict[str, str]) -> Deploy:
    """Deploy a cluster as its stack and its agents leave it."""

    def deploy(
        name: str = "demo",
        *,
        user: str = "ubuntu",
        public: str = "203.0.113.5",
        is_private: bool = False,
        private: Sequence[str] = ("10.0.0.10", "10.0.1.20", "10.0.1.30"),
        host_keys: Sequence[str] = (KEY, KEY, KEY),
    ) -> Fleet:
        cloudformation = boto3.client("cloudformation", region_name=REGION)
        cloudformation.create_stack(StackName=f"{name}-stack", TemplateBody=template(name, user, is_private=is_private))
        outputs = cloudformation.describe_stacks(StackName=f"{name}-stack")["Stacks"][0]["Outputs"]
        table = next(out["OutputValue"] for out in outputs if out["OutputKey"] == "ClusterTable")
        ids = _run_instances(name, private, None if is_private else public)
        put_membership(table, ids, private=private, host_keys=host_keys)
        return Fleet(name=name, table=table, instance_ids=ids)

    return deploy


def _run_instances(cluster_name: str, private: Sequence[str], public: str | None) -> tuple[str, ...]:
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
