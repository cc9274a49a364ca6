"""Test that EC2 describes the instance types of clusters."""

import pytest

from tests.local.control_plane.harness import Aws


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("g6.xlarge", 1), ("p3.2xlarge", 1), ("p3.8xlarge", 4), ("p2.xlarge", 1), ("c5.large", 0), ("m5.large", 0)],
)
def test_types_that_a_cluster_may_name_are_described(aws: Aws, name: str, gpus: int) -> None:
    (description,) = aws.client("ec2").describe_instance_types(InstanceTypes=[name])["InstanceTypes"]
    assert description["InstanceType"] == name
    assert sum(gpu["Count"] for gpu in description.get("GpuInfo", {}).get("Gpus", [])) == gpus
