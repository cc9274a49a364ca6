"""Test that ``ssh_location`` changes in place: other addresses are admitted, and no node restarts.

Such a deploy leaves the addresses alone that ``dlcluster allow-ip`` has added.
"""

import json
from typing import Any

import boto3

from local.network.addresses import USER_ADDRESS
from local.run.user import deploy_arguments
from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster, aliases, group_instances, stack_outputs
from tests.e2e.support.port_scan import SSH, open_ports, wait_for_ports


def instance_ids() -> set[str]:
    outputs = stack_outputs()
    groups = (outputs["MasterAutoScalingGroup"], outputs["WorkerAutoScalingGroup"])
    return {instance["InstanceId"] for group in groups for instance in group_instances(group)}


def starts(cluster: DeployedCluster) -> dict[str, str]:
    """Return values that change when a node reboots or its agent restarts."""
    command = (
        "cat /proc/sys/kernel/random/boot_id"
        " && systemctl show -p ActiveEnterTimestamp --value deeplearning-agent ssh systemd-journald"
    )
    return {alias: cluster.on(alias, command) for alias in aliases()}


def updated_resources(since: set[str]) -> list[str]:
    """List the types of resources that the stack changed since these events, except the stack itself."""
    events = boto3.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
    new = [event for event in events if event["EventId"] not in since]
    assert new
    return sorted({e["ResourceType"] for e in new if e["LogicalResourceId"] != STACK})


def properties() -> dict[tuple[str, str], Any]:
    """Return the deployed template's properties, by logical id and name."""
    body: Any = boto3.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    resources = (body if isinstance(body, dict) else json.loads(body))["Resources"]
    return {
        (logical_id, name): value
        for logical_id, resource in resources.items()
        for name, value in resource.get("Properties", {}).items()
    }


def changed(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> set[str]:
    """Return the names of the properties that differ: AWS documents whether each replaces its resource."""
    return {key[1] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def event_ids() -> set[str]:
    events = boto3.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
    return {event["EventId"] for event in events}


def deploy(cluster: DeployedCluster, ssh_location: str) -> None:
    cluster.user.cdk(*deploy_arguments(nodes=NODES), *cluster.settings, "-c", f"ssh_location={ssh_location}")


def test_ssh_location_changes_in_place(listening_cluster: DeployedCluster, outside_address: str) -> None:
    before, ids, events = starts(listening_cluster), instance_ids(), event_ids()
    public, template = listening_cluster.public_address, properties()
    deploy(listening_cluster, f"{outside_address}/32")
    try:
        wait_for_ports(lambda: open_ports(outside_address, public), {SSH})
        wait_for_ports(lambda: open_ports(USER_ADDRESS, public), set())
        assert instance_ids() == ids
        assert updated_resources(events) == ["AWS::EC2::SecurityGroup"]
        assert changed(template, properties()) == {"SecurityGroupIngress"}
        listening_cluster.user.run("dlcluster", "allow-ip", f"{outside_address}/32", "--for", "8h")
    finally:
        deploy(listening_cluster, f"{USER_ADDRESS}/32")
    wait_for_ports(lambda: open_ports(USER_ADDRESS, public), {SSH})
    # Only the list admits this address now.
    assert f"{outside_address}/32" in listening_cluster.user.output("dlcluster", "allow-ip")
    assert open_ports(outside_address, public) == {SSH}
    listening_cluster.user.run("dlcluster", "allow-ip", f"{outside_address}/32", "--remove")
    wait_for_ports(lambda: open_ports(outside_address, public), set())
    assert instance_ids() == ids
    assert starts(listening_cluster) == before
