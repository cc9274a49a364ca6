"""Test paging and unfinished stacks, which moto lacks."""

from datetime import datetime, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from bootstrap.contract import STACK_DESCRIPTION
from cli.aws.clusters import Cluster, find_cluster, find_clusters
from cli.errors import ClusterError, NoClusterError


def stack(name: str, outputs: dict[str, str]) -> dict[str, Any]:
    return {
        "StackName": name,
        "CreationTime": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "StackStatus": "CREATE_COMPLETE",
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()],
    }


def test_clusters_are_found_on_every_page() -> None:
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
        ("REVIEW_IN_PROGRESS", "nothing was created yet; cdk deploy continues it, cdk destroy removes it"),
        (
            "ROLLBACK_COMPLETE",
            "the first deploy failed and was undone, so there is no cluster and no node runs; dlcluster why --region "
            "eu-west-1 --cluster demo explains it; cdk deploy tries again, cdk destroy removes the empty stack",
        ),
        ("CREATE_IN_PROGRESS", "it is being created; dlcluster list shows when it is complete"),
        ("UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS", "dlcluster why --cluster demo shows more"),
    ],
)
@pytest.mark.parametrize("others", [[], ["another"]])
def test_stack_without_a_cluster_yet_is_reported(status: str, advice: str, others: list[str]) -> None:
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    begun = {**stack("demo", {}), "StackStatus": status}
    beside = [stack(name, {"ClusterName": name, "ClusterTable": "table", "LoginUser": "ubuntu"}) for name in others]
    with Stubber(client) as stub:
        stub.add_response("describe_stacks", {"Stacks": [begun]}, {"StackName": "demo"})
        stub.add_response("describe_stacks", {"Stacks": [begun, *beside]}, {})
        with pytest.raises(ClusterError) as caught:
            find_cluster(client, name="demo", region="eu-west-1")
    message = f"no cluster 'demo' in eu-west-1: a stack of that name exists in status {status}; {advice}"
    assert str(caught.value) == message


def test_without_a_name_the_stacks_of_unfinished_clusters_are_named() -> None:
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    created = {**stack("demo", {}), "StackStatus": "CREATE_IN_PROGRESS", "Description": STACK_DESCRIPTION}
    deleted = {**created, "StackName": "old", "StackStatus": "DELETE_IN_PROGRESS"}
    with Stubber(client) as stub:
        stub.add_response("describe_stacks", {"Stacks": [deleted, stack("foreign", {}), created]}, {})
        with pytest.raises(NoClusterError) as caught:
            find_cluster(client, name=None, region="eu-west-1")
    assert str(caught.value) == (
        "no cluster in eu-west-1; stack demo is CREATE_IN_PROGRESS: it is being created; dlcluster list shows when it "
        "is complete; stack old is DELETE_IN_PROGRESS: it is being deleted"
    )


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"ClusterName": "-oProxyCommand=x"}, "output ClusterName of stack demo must be a letter, then .*"),
        ({"ClusterName": "demo;x"}, "output ClusterName of stack demo must be a letter, then .*"),
        ({"LoginUser": "$(id)"}, r"output LoginUser of stack demo must be a user of the nodes, got '\$\(id\)'"),
        ({"LoginUser": "ubuntu\n"}, "output LoginUser of stack demo must be a user of the nodes, got 'ubuntu"),
        ({"ClusterTable": "a b"}, "output ClusterTable of stack demo must be .*, got 'a b'"),
    ],
)
def test_output_unsafe_for_ssh_is_refused(outputs: dict[str, str], message: str) -> None:
    right = {"ClusterName": "demo", "ClusterTable": "table", "LoginUser": "ubuntu", "ClusterNetworks": "10.0.0.0/16"}
    client = boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        stub.add_response("describe_stacks", {"Stacks": [stack("demo", right | outputs)]}, {})
        with pytest.raises(ClusterError, match=message):
            find_cluster(client, name=None, region="eu-west-1")


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (None, "stack s has no output ClusterNetworks: cdk deploy adds it"),
        ("everywhere", "output ClusterNetworks of stack s: networks must be 1 to 8 IPv4 blocks .*, got 'everywhere'"),
    ],
)
def test_missing_or_invalid_networks_of_the_stack_are_reported(networks: str | None, message: str) -> None:
    cluster = Cluster(name="demo", stack_name="s", table="table", login_user="ubuntu", networks_text=networks)
    with pytest.raises(ClusterError, match=message):
        assert cluster.networks
