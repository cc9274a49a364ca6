"""Test what is read of the groups and instances of a cluster."""

from typing import Any

import pytest
from botocore.stub import Stubber

from bootstrap.cluster.discovery import Instance, describe_groups, describe_instances
from bootstrap.contract import GROUP_TAG
from bootstrap.errors import GroupsError
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER


def group(node_type: str, instances: dict[str, str], *, desired_capacity: int = 1) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": f"{CLUSTER}-{node_type}",
        "MinSize": 0,
        "MaxSize": 9,
        "DesiredCapacity": desired_capacity,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["eu-west-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": "2026-01-01T00:00:00Z",
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


def test_groups_are_described_by_name_in_one_call(cluster: SimulatedCluster) -> None:
    with Stubber(cluster.clients.autoscaling) as stubber:
        stubber.add_response(
            "describe_auto_scaling_groups",
            {
                "AutoScalingGroups": [
                    group("worker", {"i-w": "Pending"}, desired_capacity=3),
                    group("master", {"i-m": "InService"}),
                ]
            },
            {"AutoScalingGroupNames": [f"{CLUSTER}-master", f"{CLUSTER}-worker"]},
        )
        groups = describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)
    assert [(group.node_type, group.desired_capacity, group.active_ids) for group in groups] == [
        ("worker", 3, frozenset({"i-w"})),
        ("master", 1, frozenset({"i-m"})),
    ]


def test_terminating_and_standby_instances_are_leaving(cluster: SimulatedCluster) -> None:
    states = {
        "i-01": "InService",
        "i-02": "Pending",
        "i-03": "Pending:Wait",
        "i-04": "Pending:Proceed",
        "i-05": "Terminating",
        "i-06": "Terminating:Wait",
        "i-07": "Terminating:Proceed",
        "i-08": "Terminated",
        "i-09": "Detaching",
        "i-10": "Detached",
        "i-11": "EnteringStandby",
        "i-12": "Standby",
    }
    with Stubber(cluster.clients.autoscaling) as stubber:
        stubber.add_response(
            "describe_auto_scaling_groups",
            {"AutoScalingGroups": [group("master", {}), group("worker", states)]},
        )
        groups = describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)
    assert groups[1].active_ids == {"i-01", "i-02", "i-03", "i-04"}
    assert groups[1].leaving_or_standby_ids == states.keys() - groups[1].active_ids


def test_missing_group_is_named_in_the_error(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    with pytest.raises(GroupsError, match="both Auto Scaling groups must exist, missing digits-worker"):
        describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)


def test_groups_of_another_cluster_are_not_found(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    assert len(describe_groups(cluster.clients.autoscaling, cluster_name=CLUSTER)) == 2
    with pytest.raises(GroupsError, match="missing other-master and other-worker"):
        describe_groups(cluster.clients.autoscaling, cluster_name="other")


def test_instances_are_collected_from_every_page_and_filter(cluster: SimulatedCluster) -> None:
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


def test_instance_that_ec2_has_forgotten_is_absent_and_no_error(cluster: SimulatedCluster) -> None:
    cluster.add_group("worker", size=1)
    [(instance_id, address)] = cluster.instances("worker")
    found = describe_instances(cluster.clients.ec2, {instance_id, "i-0123456789abcdef0"})
    assert {instance.instance_id: instance.address for instance in found.values()} == {instance_id: address}


@pytest.mark.parametrize(
    ("state", "address", "in_group", "has_left", "can_be_member"),
    [
        ("pending", "10.0.0.1", True, False, True),
        ("running", "10.0.0.1", True, False, True),
        ("pending", None, True, False, False),
        ("stopping", "10.0.0.1", True, False, False),
        ("stopped", "10.0.0.1", True, False, False),
        ("shutting-down", "10.0.0.1", True, False, False),
        ("terminated", None, True, True, False),
        ("running", "10.0.0.1", False, True, True),
    ],
)
def test_ec2_state_determines_who_can_be_a_member_and_who_has_left(
    state: str, address: str | None, in_group: bool, has_left: bool, can_be_member: bool
) -> None:
    instance = Instance(instance_id="i-1", state=state, address=address, in_group=in_group)
    assert (instance.has_left, instance.can_be_member) == (has_left, can_be_member)


def test_instance_belongs_to_a_group_until_it_is_detached(cluster: SimulatedCluster) -> None:
    cluster.add_group("worker", size=1)
    [(instance_id, _)] = cluster.instances("worker")
    [tag] = cluster.clients.ec2.describe_tags(Filters=[{"Name": "key", "Values": [GROUP_TAG]}])["Tags"]
    assert tag["ResourceId"] == instance_id
    assert describe_instances(cluster.clients.ec2, {instance_id})[instance_id].in_group
    cluster.clients.autoscaling.detach_instances(
        InstanceIds=[instance_id], AutoScalingGroupName=f"{CLUSTER}-worker", ShouldDecrementDesiredCapacity=True
    )
    assert not describe_instances(cluster.clients.ec2, {instance_id})[instance_id].in_group
