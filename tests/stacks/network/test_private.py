"""Test a private cluster: no public address, no open port, and the settings that this requires."""

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks import template_parts
from tests.stacks.existing_vpc import LOOKED_UP, MASTER, PIN, WORKERS, described
from tests.stacks.existing_vpc import synthesize as synthesize_in_vpc
from tests.stacks.synthesis import Synthesize
from tests.stacks.template_parts import launch_data


def resources(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for resource in template_parts.resources(template, kind)]


def test_no_node_has_a_public_address_or_an_open_port(synthesize: Synthesize) -> None:
    template = synthesize(private=True)
    [nat] = resources(template, "AWS::EC2::NatGateway")
    [address] = [name for name, resource in template["Resources"].items() if resource["Type"] == "AWS::EC2::EIP"]
    assert nat["AllocationId"]["Fn::GetAtt"][0] == address
    [private] = [
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::EC2::Subnet" and "Private" in name
    ]
    for group in resources(template, "AWS::AutoScaling::AutoScalingGroup"):
        assert group["VPCZoneIdentifier"] == [{"Ref": private}]
    assert [subnet["MapPublicIpOnLaunch"] for subnet in resources(template, "AWS::EC2::Subnet")] == [False, False]
    for rule in resources(template, "AWS::EC2::SecurityGroupIngress"):
        assert "SourceSecurityGroupId" in rule
        assert "CidrIp" not in rule
    assert not any("SecurityGroupIngress" in group for group in resources(template, "AWS::EC2::SecurityGroup"))
    for data in launch_data(template):
        assert '\\"address\\": null' in json.dumps(data)
    assert template["Outputs"]["ClusterPrivate"]["Value"] == "true"
    assert "ClusterAllowList" not in template["Outputs"]
    assert resources(template, "AWS::EC2::PrefixList") == []


def test_agents_permissions_exist_before_the_nodes(synthesize: Synthesize) -> None:
    # AWS's SSM agent, denied at its first attempt, waits for minutes.
    template = synthesize(private=True)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup":
            assert sum("DefaultPolicy" in name for name in resource["DependsOn"]) == 2


def test_running_cluster_stays_private_or_public(template: dict[str, Any], synthesize: Synthesize) -> None:
    kept = {
        parameter["Description"].split()[1]: (name, parameter["Default"])
        for name, parameter in synthesize(private=True)["Parameters"].items()
        if parameter.get("Description", "").startswith("The ")
    }
    name, value = kept["private"]
    assert (value, template["Parameters"][name]["Default"]) == ("true", "false")


@pytest.mark.parametrize(
    ("given", "taken"), [("true", True), ("True", True), (True, True), ("false", False), ("", False)]
)
def test_true_and_false_are_taken_as_text_too(given: object, taken: bool) -> None:
    assert ClusterProps.from_context({"private": given}).private is taken


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"private": "yes"}, "private must be true or false, got 'yes'"),
        ({"private": 1}, "private must be true or false, got 1"),
        (
            {"private": True, "ssh_location": "203.0.113.7/32"},
            r"ssh_location must be left out with private: .* \(-c ssh_location= clears one from ~/.cdk.json\), "
            "got '203.0.113.7/32'",
        ),
    ],
)
def test_private_with_contradicting_settings_is_refused(context: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ClusterProps.from_context(context)


def test_nothing_warns_that_no_port_is_open() -> None:
    assert "no-ssh" in ClusterProps(key_name="me").warnings()
    assert ClusterProps(key_name="me", private=True).warnings() == {}


def test_in_an_existing_vpc_both_groups_are_in_private_subnets(context: dict[str, Any], tmp_path: Path) -> None:
    _, missing = synthesize_in_vpc(context, tmp_path / "first", private=True, master_subnet_id=None)
    assert [lookup["key"] for lookup in missing] == [PIN], "the first pass, before the lookup, refuses nothing"
    template, _ = synthesize_in_vpc(context | LOOKED_UP, tmp_path / "second", private=True, master_subnet_id=None)
    assert resources(template, "AWS::EC2::EIP") == []
    assert {
        str(resource["VPCZoneIdentifier"]) for resource in resources(template, "AWS::AutoScaling::AutoScalingGroup")
    } == {str([WORKERS])}


def test_private_master_in_a_public_subnet_is_refused(context: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"master_subnet_id must be a private subnet with private: {WORKERS}, got"):
        synthesize_in_vpc(context | LOOKED_UP, tmp_path, private=True)
    public = described(
        [("Public", MASTER, "10.8.0.0/24", "us-west-2b"), ("Public", WORKERS, "10.8.1.0/24", "us-west-2b")]
    )
    with pytest.raises(SettingsError, match=r"subnet_id must be a private subnet with private: vpc-\w+ has none there"):
        synthesize_in_vpc(context | public, tmp_path, private=True)
