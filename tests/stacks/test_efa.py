"""Check the template of clusters whose nodes use the Elastic Fabric Adapter."""

import re
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Annotations, Match

from bootstrap import contract
from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.stacks.template_parts import Template, logical_id, resources

Synthesize = Callable[..., Template]


def templates(template: Template) -> dict[str, dict[str, Any]]:
    """Return the data of both launch templates."""
    found = {name: logical_id(template, "AWS::EC2::LaunchTemplate", name) for name in ("Master", "Worker")}
    return {
        name: template["Resources"][logical_name]["Properties"]["LaunchTemplateData"]
        for name, logical_name in found.items()
    }


def test_interface_has_the_security_groups_and_efa_one_of_its_own(synthesize: Synthesize) -> None:
    template = synthesize(instance_type="g5.8xlarge", ssh_location="203.0.113.0/24")
    efa = logical_id(template, "AWS::EC2::SecurityGroup", "Efa")
    admin = template["Outputs"][contract.ADMIN_SECURITY_GROUP_OUTPUT]["Value"]
    for name, data in templates(template).items():
        assert "SecurityGroupIds" not in data
        [interface] = data["NetworkInterfaces"]
        assert interface["InterfaceType"] == "efa"
        assert {"Fn::GetAtt": [efa, "GroupId"]} in interface["Groups"]
        assert (admin in interface["Groups"]) is (name == "Master")
    for kind, peer in (
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        rules = [rule["Properties"] for rule in resources(template, kind)]
        own = [rule for rule in rules if rule["GroupId"] == {"Fn::GetAtt": [efa, "GroupId"]}]
        assert [(rule["IpProtocol"], rule[peer]) for rule in own] == [("-1", {"Fn::GetAtt": [efa, "GroupId"]})]


@pytest.mark.parametrize("placement_group", ["auto", "off"])
def test_nodes_with_efa_are_placed_together(synthesize: Synthesize, placement_group: str) -> None:
    template = synthesize(instance_type="p6-b300.48xlarge", private=True, placement_group=placement_group)
    groups = [
        name for name, resource in template["Resources"].items() if resource["Type"] == "AWS::EC2::PlacementGroup"
    ]
    placements = [data.get("Placement") for data in templates(template).values()]
    assert placements == ([None] * 2 if placement_group == "off" else [{"GroupName": {"Ref": groups[0]}}] * 2)
    assert all(len(data["NetworkInterfaces"]) == 17 for data in templates(template).values())
    assert '"efa_interfaces": 16' in str(templates(template)["Worker"]["UserData"])


@pytest.mark.parametrize("settings", [{"instance_type": "g5.8xlarge", "efa": "off"}, {"instance_type": "g5.xlarge"}])
def test_nodes_without_efa_have_neither_its_security_nor_placement_group(
    synthesize: Synthesize, settings: dict[str, str]
) -> None:
    template = synthesize(**settings)
    for data in templates(template).values():
        assert "NetworkInterfaces" not in data
        assert "Placement" not in data
        assert data["SecurityGroupIds"]
    names = {name for name in template["Resources"] if "SecurityEfa" in name or "PlacementGroup" in name}
    kinds = {template["Resources"][name]["Type"].rpartition(":")[2] for name in names}
    assert kinds == {"SecurityGroup", "SecurityGroupIngress", "SecurityGroupEgress", "PlacementGroup"}
    # Nodes of an earlier deploy end before the groups do.
    for group in resources(template, "AWS::AutoScaling::AutoScalingGroup"):
        assert names <= set(group["DependsOn"])


def test_master_with_several_interfaces_must_be_private_to_deploy() -> None:
    app = cdk.App(post_cli_context={"@aws-cdk/core:annotationsInValidationReport": False}, analytics_reporting=False)
    stack = ClusterStack(app, "ClusterStack", props=ClusterProps(instance_type="p5.48xlarge"))
    [found] = Annotations.from_stack(stack).find_error("*", Match.any_value())
    assert re.search(
        r"32 interfaces with EFA, .*: set private=true, efa=off or a master_instance_type such as m7i.xlarge$",
        str(found.entry.data),
    )
    assert ClusterProps(instance_type="p5.48xlarge", private=True).efa_interfaces == 32
    assert ClusterProps(instance_type="p5.48xlarge", efa="off").efa_interfaces == 0
    assert ClusterProps(instance_type="p5.4xlarge").efa_interfaces == 1
