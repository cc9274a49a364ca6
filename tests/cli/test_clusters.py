"""Paging, which moto does not do."""

from typing import Any

import boto3
from botocore.stub import Stubber

from cli.clusters import find_clusters


def stack(name: str, outputs: dict[str, str]) -> dict[str, Any]:
    return {
        "StackName": name,
        "CreationTime": "2026-01-01T00:00:00Z",
        "StackStatus": "CREATE_COMPLETE",
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()],
    }


def test_clusters_are_found_on_every_page_and_other_stacks_left_alone() -> None:
    outputs = {"ClusterName": "last", "ClusterTable": "t", "LoginUser": "ubuntu", "More": "x"}
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        foreign = [stack("foreign", {"ClusterName": "not ours"}), {**stack("none", {}), "Outputs": []}]
        stub.add_response("describe_stacks", {"Stacks": foreign, "NextToken": "more"}, {})
        stub.add_response("describe_stacks", {"Stacks": [stack("s", outputs)]}, {"NextToken": "more"})
        assert [cluster.name for cluster in find_clusters(client)] == ["last"]
        stub.assert_no_pending_responses()
