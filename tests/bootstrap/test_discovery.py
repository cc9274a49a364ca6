from typing import Any

import pytest
from botocore.stub import Stubber

from bootstrap.contract import CLUSTER_TAG, NODE_TYPE_TAG
from bootstrap.discovery import describe_groups, describe_instances
from bootstrap.errors import GroupsError
from tests.bootstrap.conftest import CLUSTER, Cluster

GROUP_FILTER = {"Filters": [{"Name": f"tag:{CLUSTER_TAG}", "Values": [CLUSTER]}]}


def group(node_type: str, instances: dict[str, str], *, desired: int = 1) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": f"group-{node_type}",
        "MinSize": 0,
        "MaxSize": 9,
        "DesiredCapacity": desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["eu-west-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": "2026-01-01T00:00:00Z",
        "Tags": [{"Key": NODE_TYPE_TAG, "Value": node_type}],
        "Instances": [
            {
                "InstanceId": instance_id,
                "LifecycleState": state,
                "AvailabilityZone": "eu-west-1a",
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": False,
            }
            for instance_id, state in instances.items()
        ],
    }


def test_groups_are_collected_from_every_page(cluster: Cluster) -> None:
    with Stubber(cluster.clients.autoscaling) as stubber:
        stubber.add_response(
            "describe_auto_scaling_groups",
            {"AutoScalingGroups": [group("master", {"i-m": "InService"})], "NextToken": "more"},
            GROUP_FILTER,
        )
        stubber.add_response(
            "describe_auto_scaling_groups",
            {"AutoScalingGroups": [group("worker", {"i-w": "Pending"}, desired=3)]},
            GROUP_FILTER | {"NextToken": "more"},
        )
        groups = describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)
    assert [(each.node_type, each.desired, set(each.instance_ids)) for each in groups] == [
        ("master", 1, {"i-m"}),
        ("worker", 3, {"i-w"}),
    ]


def test_instances_on_their_way_out_are_not_in_the_group(cluster: Cluster) -> None:
    states = {
        "i-1": "InService",
        "i-2": "Terminating",
        "i-3": "Terminating:Wait",
        "i-4": "Pending:Wait",
        "i-5": "Terminated",
        "i-6": "Detaching",
        "i-7": "Standby",
    }
    with Stubber(cluster.clients.autoscaling) as stubber:
        stubber.add_response(
            "describe_auto_scaling_groups",
            {"AutoScalingGroups": [group("master", {}), group("worker", states)]},
        )
        groups = describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)
    assert groups[1].instance_ids == {"i-1", "i-4", "i-7"}


def test_fails_when_one_kind_of_group_is_not_there_yet(cluster: Cluster) -> None:
    cluster.add_group("master", size=1)
    with pytest.raises(GroupsError, match="cluster digits has no worker group yet"):
        describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)


def test_fails_when_a_group_has_no_node_type(cluster: Cluster) -> None:
    with Stubber(cluster.clients.autoscaling) as stubber:
        stubber.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group("other", {})]})
        with pytest.raises(GroupsError, match="of group-other must be master or worker, got other"):
            describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)


def test_groups_of_another_cluster_are_not_ours(cluster: Cluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    assert len(describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)) == 2
    with pytest.raises(GroupsError, match="cluster other has no master and no worker group yet"):
        describe_groups(cluster.clients.autoscaling, cluster_name="other")


def test_instances_are_collected_from_every_page_and_filter(cluster: Cluster) -> None:
    ids = [f"i-{number:03}" for number in range(201)]

    def page(instance_id: str) -> dict[str, Any]:
        instance = {"InstanceId": instance_id, "State": {"Name": "running"}, "PrivateIpAddress": "10.0.0.1"}
        return {"Reservations": [{"Instances": [instance]}]}

    with Stubber(cluster.clients.ec2) as stubber:
        first = {"Filters": [{"Name": "instance-id", "Values": ids[:200]}]}
        stubber.add_response("describe_instances", page("i-000") | {"NextToken": "more"}, first)
        stubber.add_response("describe_instances", page("i-001"), first | {"NextToken": "more"})
        last = {"Filters": [{"Name": "instance-id", "Values": ids[200:]}]}
        stubber.add_response("describe_instances", page("i-200"), last)
        assert sorted(describe_instances(cluster.clients.ec2, ids)) == ["i-000", "i-001", "i-200"]


def test_instance_that_ec2_has_forgotten_is_absent_and_no_error(cluster: Cluster) -> None:
    cluster.add_group("worker", size=1)
    [(instance_id, address)] = cluster.instances("worker")
    found = describe_instances(cluster.clients.ec2, {instance_id, "i-0123456789abcdef0"})
    assert {each.instance_id: each.address for each in found.values()} == {instance_id: address}
