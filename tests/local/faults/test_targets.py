"""Test that a name is described by its instance, as EC2 reports it."""

from collections.abc import Iterator

import boto3
import moto
import pytest

from local.errors import LocalError
from local.faults.clients import client
from local.faults.targets import describe_target


@pytest.fixture
def instance_id(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    with moto.mock_aws():
        run = boto3.client("ec2").run_instances(
            ImageId="ami-12c6146b", MinCount=1, MaxCount=1, PrivateIpAddress="172.31.0.9"
        )
        client.cache_clear()
        yield run["Instances"][0]["InstanceId"]
        client.cache_clear()


def test_node_is_shown_with_its_index_its_instance_and_its_address(instance_id: str) -> None:
    clusters = {"one": {1: "i-1", 2: instance_id}}
    for name in ("worker2", "deeplearning-worker2", instance_id):
        assert str(describe_target(name, clusters)) == f"worker2 ({instance_id}, 172.31.0.9)"


def test_instance_without_a_node_index_is_shown_too(instance_id: str) -> None:
    assert str(describe_target(instance_id, {})) == f"{instance_id} (172.31.0.9)"


def test_unknown_or_ended_instance_is_refused(instance_id: str) -> None:
    with pytest.raises(LocalError, match="no instance i-0123"):
        describe_target("i-0123", {})
    boto3.client("ec2").terminate_instances(InstanceIds=[instance_id])
    with pytest.raises(LocalError, match=rf"^worker2 \({instance_id}\) is terminated$"):
        describe_target("worker2", {"one": {2: instance_id}})
