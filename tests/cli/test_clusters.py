"""Paging and unfinished stacks, which moto does not do."""

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cli.clusters import find_cluster, find_clusters
from cli.errors import ClusterError


def stack(name: str, outputs: dict[str, str]) -> dict[str, Any]:
    return {
        "StackName": name,
        "CreationTime": "2026-01-01T00:00:00Z",
        "StackStatus": "CREATE_COMPLETE",
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()],
    }


def test_clusters_are_found_on_every_page_and_other_stacks_left_alone() -> None:
    outputs = {"ClusterName": "last", "ClusterTable": "table", "LoginUser": "ubuntu", "More": "x"}
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        foreign = [stack("foreign", {"ClusterName": "not ours"}), {**stack("none", {}), "Outputs": []}]
        stub.add_response("describe_stacks", {"Stacks": foreign, "NextToken": "more"}, {})
        stub.add_response("describe_stacks", {"Stacks": [stack("s", outputs)]}, {"NextToken": "more"})
        assert [cluster.name for cluster in find_clusters(client)] == ["last"]
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("REVIEW_IN_PROGRESS", "cdk deploy goes on with it, cdk destroy removes it"),
        ("CREATE_IN_PROGRESS", "dlcluster why --cluster demo tells more"),
    ],
)
@pytest.mark.parametrize("others", [[], ["another"]])
def test_fails_when_the_stack_of_the_name_is_no_cluster_yet(status: str, advice: str, others: list[str]) -> None:
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    begun = {**stack("demo", {}), "StackStatus": status}
    beside = [stack(name, {"ClusterName": name, "ClusterTable": "table", "LoginUser": "ubuntu"}) for name in others]
    with Stubber(client) as stub:
        stub.add_response("describe_stacks", {"Stacks": [begun]}, {"StackName": "demo"})
        stub.add_response("describe_stacks", {"Stacks": [begun, *beside]}, {})
        with pytest.raises(ClusterError) as caught:
            find_cluster(client, name="demo", region="eu-west-1")
    told = f"no cluster 'demo' in eu-west-1: a stack of that name is there in status {status}; {advice}"
    assert str(caught.value) == told
