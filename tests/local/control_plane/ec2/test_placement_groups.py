"""Test that the placement groups of stacks are described, and that none is deleted under its instances."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Stacks, wait_for_server
from tests.local.control_plane.templates import cluster, group, launch_template, resource


def placement_groups(aws: Aws, **request: Any) -> list[tuple[str, str, str]]:
    groups = aws.client("ec2").describe_placement_groups(**request)["PlacementGroups"]
    return [(described["GroupName"], described["State"], described["Strategy"]) for described in groups]


def test_stacks_placement_group_is_described_until_it_is_deleted(aws: Aws, stacks: Stacks) -> None:
    stacks.create({"Resources": {"Placement": resource("EC2::PlacementGroup", Strategy="cluster")}})
    name = stacks.physical_id("Placement")
    assert placement_groups(aws) == placement_groups(aws, GroupNames=[name]) == [(name, "available", "cluster")]
    stacks.cloudformation.delete_stack(StackName="stack")
    assert placement_groups(aws) == []
    with pytest.raises(ClientError, match=rf"InvalidPlacementGroup.Unknown.*The Placement Group '{name}' is unknown"):
        placement_groups(aws, GroupNames=[name])


def test_placement_group_with_an_instance_is_not_deleted(aws: Aws, stacks: Stacks) -> None:
    stacks.create({"Resources": {"Placement": resource("EC2::PlacementGroup", Strategy="cluster")}}, "groups")
    name = stacks.physical_id("Placement", "groups")
    nodes = cluster(Group=group(1))
    nodes["Resources"]["Template"] = launch_template(Placement={"GroupName": name})
    stacks.create(nodes)
    stacks.cloudformation.delete_stack(StackName="groups")
    wait_for_server(lambda: stacks.status("groups") == "DELETE_FAILED", "the refused deletion")
    reason = stacks.events("Placement", "groups")[-1]
    assert reason[0] == "DELETE_FAILED"
    assert f"The placement group '{name}' is in use and may not be deleted." in reason[1]
    stacks.cloudformation.delete_stack(StackName="stack")
    stacks.cloudformation.delete_stack(StackName="groups")
    assert placement_groups(aws) == []
