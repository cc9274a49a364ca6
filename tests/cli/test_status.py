"""What status says of nodes that are missing."""

from datetime import datetime, timezone

import boto3
import pytest
from botocore.stub import Stubber

from cli.aws import Clients
from cli.main import main
from tests.cli.conftest import KEY, REGION, Deploy, put_membership

GROUP = {
    "AutoScalingGroupName": "workers", "MinSize": 1, "MaxSize": 1, "DesiredCapacity": 1, "DefaultCooldown": 1,
    "AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
ACTIVITY = {
    "ActivityId": "1", "AutoScalingGroupName": "workers", "Cause": "x", "Description": "Launching a new EC2 instance.",
    "StartTime": datetime(2026, 1, 1, tzinfo=timezone.utc), "StatusCode": "Failed", "StatusMessage": "no capacity",
}  # fmt: skip


@pytest.fixture
def stub(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> Stubber:
    """A cluster of three that should be four, and what Auto Scaling is to answer."""
    fleet = deploy()
    addresses = ["10.0.0.10", "10.0.1.20", "10.0.1.30"]
    put_membership(fleet.table, fleet.instance_ids, private=addresses, host_keys=[KEY] * 3, expected=4)
    client = boto3.client("autoscaling", region_name=REGION)
    monkeypatch.setattr(Clients, "autoscaling", client)
    return Stubber(client)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["status"]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def test_the_newest_scaling_activity_explains_a_missing_node(stub: Stubber, capsys: pytest.CaptureFixture[str]) -> None:
    with stub:
        stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [GROUP]})
        stub.add_response("describe_scaling_activities", {"Activities": [ACTIVITY]})
        assert last_line(capsys) == (
            "1 of 4 nodes missing (dlcluster why tells more); newest scaling activity: "
            "2026-01-01 00:00:00 workers: Launching a new EC2 instance, Failed: no capacity"
        )


def test_a_user_who_may_not_ask_auto_scaling_gets_the_table(stub: Stubber, capsys: pytest.CaptureFixture[str]) -> None:
    with stub:
        stub.add_client_error("describe_auto_scaling_groups", "AccessDenied", "no")
        assert last_line(capsys).endswith("AWS refused DescribeAutoScalingGroups: AccessDenied: no")


def test_a_whole_cluster_asks_no_more(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy()
    assert "missing" not in last_line(capsys)
