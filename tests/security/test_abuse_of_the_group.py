"""Test what an attacker on a node can do to other nodes, of its group and of the other one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bootstrap.team_keys.keys import TAG
from tests.local.control_plane.harness import Group, state, wait_for_server
from tests.security.cluster import BOTH, Node, RoleCluster, abuses, refused

OWN_GROUP = "autoscaling:autoScalingGroup:*:autoScalingGroupName/OWN-GROUP"
HOOK = "drain"


def group(cluster: RoleCluster, node_type: str) -> Group:
    return Group(aws=cluster.aws, name=cluster.group(node_type))


def other_type(node: Node) -> str:
    return "worker" if node.type == "master" else "master"


@abuses(BOTH, f"autoscaling:SetInstanceHealth on {OWN_GROUP}")
def test_node_has_any_node_of_its_group_replaced(node: Node) -> None:
    autoscaling, cluster = node.client("autoscaling"), node.cluster
    own = group(cluster, node.type)
    victim = sorted(own.in_service())[-1]
    (stranger, *_) = group(cluster, other_type(node)).in_service()
    refused(autoscaling.set_instance_health, InstanceId=stranger, HealthStatus="Unhealthy")
    refused(autoscaling.set_desired_capacity, AutoScalingGroupName=own.name, DesiredCapacity=0)
    refused(autoscaling.suspend_processes, AutoScalingGroupName=own.name)
    refused(
        autoscaling.terminate_instance_in_auto_scaling_group, InstanceId=victim, ShouldDecrementDesiredCapacity=True
    )
    size = len(own.members())
    autoscaling.set_instance_health(InstanceId=victim, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False)
    assert victim not in own.in_service()
    wait_for_server(lambda: len(own.in_service()) == size, "a replacement")
    own.complete(victim, HOOK)


@abuses(
    BOTH,
    f"autoscaling:CompleteLifecycleAction on {OWN_GROUP}",
    f"autoscaling:RecordLifecycleActionHeartbeat on {OWN_GROUP}",
)
def test_node_can_extend_and_complete_hooks_of_its_own_group_only(node: Node) -> None:
    autoscaling, cluster = node.client("autoscaling"), node.cluster
    leavers = {node_type: sorted(group(cluster, node_type).in_service())[-1] for node_type in BOTH}
    for node_type, leaver in leavers.items():
        group(cluster, node_type).terminate(leaver)
    theirs = {
        "AutoScalingGroupName": cluster.group(other_type(node)),
        "LifecycleHookName": HOOK,
        "InstanceId": leavers[other_type(node)],
    }
    refused(autoscaling.record_lifecycle_action_heartbeat, **theirs)
    refused(autoscaling.complete_lifecycle_action, LifecycleActionResult="CONTINUE", **theirs)
    refused(autoscaling.delete_auto_scaling_group, AutoScalingGroupName=cluster.group(node.type), ForceDelete=True)
    own = {"AutoScalingGroupName": cluster.group(node.type), "LifecycleHookName": HOOK}
    autoscaling.record_lifecycle_action_heartbeat(InstanceId=leavers[node.type], **own)
    autoscaling.complete_lifecycle_action(InstanceId=leavers[node.type], LifecycleActionResult="CONTINUE", **own)
    assert state(cluster.aws, leavers[node.type]) == "terminated"
    group(cluster, other_type(node)).complete(leavers[other_type(node)], HOOK)


@pytest.fixture
def with_all_of_autoscaling(cluster: RoleCluster) -> Iterator[None]:
    """Give both roles what AutoScalingFullAccess in policy_arns gives them."""
    iam, nodes = cluster.aws.client("iam"), [cluster.node(node_type) for node_type in BOTH]
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "autoscaling:*", "Resource": "*"}]}
    for node in nodes:
        iam.put_role_policy(RoleName=node.role["RoleName"], PolicyName="all", PolicyDocument=json.dumps(policy))
    yield
    for node in nodes:
        iam.delete_role_policy(RoleName=node.role["RoleName"], PolicyName="all")


@pytest.mark.usefixtures("with_all_of_autoscaling")
def test_no_node_adds_an_ssh_key_to_the_teams(cluster: RoleCluster, node: Node) -> None:
    autoscaling = node.client("autoscaling")
    keys = {"ResourceType": "auto-scaling-group", "Key": TAG, "Value": "x", "PropagateAtLaunch": False}
    ours = keys | {"ResourceId": cluster.group("master")}
    refused(autoscaling.create_or_update_tags, Tags=[ours])
    refused(autoscaling.delete_tags, Tags=[ours])
    # The policy allows it on the group whose tags contain no keys.
    autoscaling.create_or_update_tags(Tags=[keys | {"ResourceId": cluster.group("worker")}])
    autoscaling.delete_tags(Tags=[keys | {"ResourceId": cluster.group("worker")}])


ZERO = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
PAUSE = "autoscaling:UpdateAutoScalingGroup on autoscaling:autoScalingGroup:*:autoScalingGroupName"


@abuses(
    ("master",),
    *(f"{PAUSE}/{name}, autoscaling:MinSize 0, autoscaling:MaxSize 0" for name in ("OWN-GROUP", "deeplearning-worker")),
)
def test_master_pauses_the_cluster_and_sets_no_other_size(cluster: RoleCluster, master: Node) -> None:
    autoscaling, worker = master.client("autoscaling"), cluster.node("worker")
    for name in (cluster.group("master"), cluster.group("worker")):
        refused(worker.client("autoscaling").update_auto_scaling_group, AutoScalingGroupName=name, **ZERO)
        for sizes in (
            {**ZERO, "MaxSize": 1},
            {**ZERO, "MaxSize": 1, "MinSize": 1, "DesiredCapacity": 1},
            {"MinSize": 0},
            {"MaxSize": 0},
            {"DesiredCapacity": 0},
        ):
            refused(autoscaling.update_auto_scaling_group, AutoScalingGroupName=name, **sizes)
        refused(autoscaling.set_desired_capacity, AutoScalingGroupName=name, DesiredCapacity=0)
        pause_and_resume(group(cluster, name.rpartition("-")[2]), autoscaling)


def pause_and_resume(group: Group, autoscaling: Any) -> None:
    """Set the group to zero with the attacker's client, and back as an administrator."""
    members = group.in_service()
    size = len(members)
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=group.name, **ZERO)
    wait_for_server(lambda: not group.in_service(), "the end of the group's nodes")
    for member in members:
        group.complete(member, HOOK)
    group.aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=group.name, MinSize=size, MaxSize=size, DesiredCapacity=size
    )
    wait_for_server(lambda: len(group.in_service()) == size, "the group's new nodes")
