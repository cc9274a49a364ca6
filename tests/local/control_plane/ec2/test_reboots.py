"""Test which instances can be rebooted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from local.node.reboots import seconds_since_request
from tests.local.control_plane.harness import REGION, start_server


@pytest.fixture
def ec2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("LOCAL_AWS_DIR", str(tmp_path))
    process, port = start_server()
    session: Any = boto3.Session()
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    yield session.client("ec2", region_name=REGION, endpoint_url=f"http://localhost:{port}", **keys)
    process.terminate()
    process.wait(timeout=60)
    assert process.stdout
    process.stdout.close()


def test_only_a_running_instance_is_rebooted(ec2: Any, tmp_path: Path) -> None:
    image = ec2.describe_images()["Images"][0]["ImageId"]
    made = ec2.run_instances(ImageId=image, MinCount=2, MaxCount=2, InstanceType="c5.large")["Instances"]
    running, ended = (instance["InstanceId"] for instance in made)
    ec2.reboot_instances(InstanceIds=[running])
    assert seconds_since_request(tmp_path, running) is not None
    ec2.terminate_instances(InstanceIds=[ended])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        ec2.reboot_instances(InstanceIds=[running, ended])
    assert seconds_since_request(tmp_path, ended) is None
