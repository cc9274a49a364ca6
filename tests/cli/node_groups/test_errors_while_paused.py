"""Test what dlcluster says about a node that is missing because the cluster is paused."""

import boto3
import pytest

from bootstrap.contract import CAPACITY_BLOCK_PAUSES_TAG, CLUSTER_TAG
from cli.errors import EXIT_FAILED
from cli.main import main
from tests.cli.moto_cluster import KEY, REGION, Deploy, MotoCluster, error_line, put_members

PAUSED = "the cluster is paused: dlcluster resume brings its nodes back"


@pytest.fixture
def moto_cluster(deploy: Deploy) -> MotoCluster:
    return deploy(is_private=True)


def pause(moto_cluster: MotoCluster, **tags: str) -> None:
    """Leave the cluster without members, with an empty group that has these tags too."""
    put_members(moto_cluster.table, [])
    autoscaling = boto3.client("autoscaling", region_name=REGION)
    autoscaling.create_launch_configuration(LaunchConfigurationName="l", ImageId="ami-1", InstanceType="p5.48xlarge")
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="demo-master",
        LaunchConfigurationName="l",
        AvailabilityZones=[f"{REGION}a"],
        MinSize=0,
        MaxSize=0,
        DesiredCapacity=0,
        Tags=[{"Key": key, "Value": value} for key, value in ({CLUSTER_TAG: "demo"} | tags).items()],
    )


def proxy(moto_cluster: MotoCluster, node: str) -> list[str]:
    """Return the line that the block of ssh-config runs."""
    return ["ssm-proxy", "--table", moto_cluster.table, "--networks", "10.0.0.0/8", "demo", node]


def test_resume_is_not_advised_outside_of_a_capacity_block(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    pause(moto_cluster, **{CAPACITY_BLOCK_PAUSES_TAG: "2026-12-01T00:40:00Z"})
    for line in (proxy(moto_cluster, "master"), ["jobs"]):
        assert main(line) == EXIT_FAILED
        assert error_line(capsys) == "the cluster is paused"


def test_forged_record_is_reported_although_the_cluster_is_paused(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    pause(moto_cluster)
    assert main(proxy(moto_cluster, "master")) == EXIT_FAILED
    assert error_line(capsys) == PAUSED
    [instance] = boto3.client("ec2", region_name=REGION).run_instances(
        ImageId="ami-1", MinCount=1, MaxCount=1, InstanceType="m5.large"
    )["Instances"]
    row = {"node_index": 1, "node_type": "master", "instance_id": instance["InstanceId"], "address": "10.0.0.10"}
    put_members(moto_cluster.table, [row | {"host_key": KEY}])
    for line in (proxy(moto_cluster, "master"), ["jobs"]):
        assert main(line) == EXIT_FAILED
        assert "which is not the cluster's: its tag deeplearning:cluster must be demo" in error_line(capsys)
