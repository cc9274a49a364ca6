"""Read the state of the cluster from AWS and from its nodes, to compare it before and after a deploy."""

import json
import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import boto3

from local.faults.clients import client
from tests.e2e.support.deployed_cluster import STACK, DeployedCluster, group_instances, stack_outputs
from tests.e2e.support.node_views import AGREE_TIMEOUT_S, InstancesByAlias, NodeIdentity, identities


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterState:
    """State of the cluster between two deploys."""

    instances: InstancesByAlias
    identities: dict[str, NodeIdentity]
    versions: list[int]
    """Versions of the launch templates that the two groups use."""
    members: dict[str, dict[str, Any]]
    """Properties of each instance of the groups, by id, that EC2 itself does not change."""
    records: dict[str, dict[str, Any]]
    """Items of the cluster's table, by instance id or key."""


def groups() -> list[dict[str, Any]]:
    outputs = stack_outputs()
    names = [outputs["MasterAutoScalingGroup"], outputs["WorkerAutoScalingGroup"]]
    found: Any = boto3.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)
    return sorted(found["AutoScalingGroups"], key=lambda group: names.index(group["AutoScalingGroupName"]))


def members() -> dict[str, dict[str, Any]]:
    kept = ("InstanceType", "ImageId", "PrivateIpAddress", "PublicIpAddress", "LaunchTime", "Tags")
    found = [instance for group in groups() for instance in group_instances(group["AutoScalingGroupName"])]
    return {instance["InstanceId"]: {key: instance.get(key) for key in kept} for instance in found}


def records() -> dict[str, dict[str, Any]]:
    table: Any = boto3.resource("dynamodb").Table(stack_outputs()["ClusterTable"])
    return {item["id"].rpartition(":")[2]: item for item in table.scan()["Items"]}


def state(cluster: DeployedCluster, instances: InstancesByAlias) -> ClusterState:
    return ClusterState(
        instances=instances,
        identities=identities(cluster, instances),
        versions=[int(group["LaunchTemplate"]["Version"]) for group in groups()],
        members=members(),
        records=records(),
    )


def event_ids() -> set[str]:
    events = boto3.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
    return {event["EventId"] for event in events}


def with_newcomer(instances: InstancesByAlias) -> InstancesByAlias:
    """Return the members after the only new instance has taken the next index."""
    (newcomer,) = members().keys() - {*instances.values()}
    return {**instances, f"deeplearning-worker{len(instances) + 1}": newcomer}


def wait_until_only(instance_ids: Set[str]) -> None:
    """Wait until leaving nodes have ended: no list contains them, but they run until the others have noticed."""
    deadline = time.monotonic() + AGREE_TIMEOUT_S
    while True:
        rows = json.loads(records()["membership"]["members"])
        here = members().keys() | {row["instance_id"] for row in rows}
        if here == instance_ids:
            return
        assert time.monotonic() < deadline, f"waited {AGREE_TIMEOUT_S:.0f} s for {here - instance_ids} to end"
        time.sleep(0.5)


def template() -> Any:
    """Return the deployed template, generated from settings and code."""
    return client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
