"""Test an existing VPC: what is looked up once, what is refused, and that the stack creates no network beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.existing_vpc import (
    LOOKED_UP,
    MASTER,
    PIN,
    SETTINGS,
    VPC,
    WORKERS,
    described,
    synthesize,
)


def resources(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for resource in template["Resources"].values() if resource["Type"] == f"AWS::{kind}"]


def test_vpc_is_looked_up_once_and_nothing_else(context: dict[str, Any], tmp_path: Path) -> None:
    _, missing = synthesize(context, tmp_path / "first")
    assert [lookup["key"] for lookup in missing] == [PIN]
    _, missing = synthesize(context | LOOKED_UP, tmp_path / "second")
    assert missing == []


def test_nodes_are_in_the_subnets_and_no_network_is_made(context: dict[str, Any], tmp_path: Path) -> None:
    template, _ = synthesize(context | LOOKED_UP, tmp_path)
    made = {
        resource["Type"] for resource in template["Resources"].values() if resource["Type"].startswith("AWS::EC2::")
    }
    rules = {"AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"}
    kinds = ("EIP", "SecurityGroup", "PrefixList", "PlacementGroup", "LaunchTemplate")
    assert made - rules == {f"AWS::EC2::{kind}" for kind in kinds}
    subnets = [group["VPCZoneIdentifier"] for group in resources(template, "AutoScaling::AutoScalingGroup")]
    assert subnets == [[MASTER], [WORKERS]]
    assert {group["VpcId"] for group in resources(template, "EC2::SecurityGroup")} == {VPC}


def test_nodes_trust_the_addresses_of_their_subnets_also_in_a_secondary_block(
    context: dict[str, Any], tmp_path: Path
) -> None:
    template, _ = synthesize(context | LOOKED_UP, tmp_path)
    assert template["Outputs"]["ClusterNetworks"]["Value"] == "10.8.0.0/24,100.64.0.0/20"
    for launch_template in resources(template, "EC2::LaunchTemplate"):
        assert '\\"networks\\": \\"10.8.0.0/24,100.64.0.0/20\\"' in json.dumps(launch_template)


def test_running_cluster_keeps_its_vpc_and_subnets(context: dict[str, Any], tmp_path: Path) -> None:
    template, _ = synthesize(context | LOOKED_UP, tmp_path)
    kept = {
        parameter["Description"].split()[1]: parameter["Default"]
        for parameter in template["Parameters"].values()
        if "Default" in parameter
    }
    assert {name: kept[name] for name in ("vpc_id", "subnet_id", "master_subnet_id", "availability_zone")} == {
        "vpc_id": VPC,
        "subnet_id": WORKERS,
        "master_subnet_id": MASTER,
        "availability_zone": "us-west-2b",
    }
    own, _ = synthesize(context, tmp_path / "own", vpc_id=None, subnet_id=None, master_subnet_id=None)
    # The parameter is the same, so that a cluster can move neither into an existing VPC nor out of it.
    [parameter] = [name for name, declared in template["Parameters"].items() if declared.get("Default") == VPC]
    assert own["Parameters"][parameter]["Default"] == "10.0.0.0/16"


@pytest.mark.parametrize(
    ("subnets", "settings", "message"),
    [
        ([], {}, f"master_subnet_id must be a subnet of {VPC}: {WORKERS}, got '{MASTER}'"),
        ([("Public", MASTER, "10.8.0.0/24", "us-west-2c")], {}, "must be in the zone of subnet_id, us-west-2b"),
        ([("Private", MASTER, "10.8.0.0/24", "us-west-2b")], {}, f"must be a public subnet, .*: {VPC} has none there"),
        ([("Public", MASTER, "10.8.0.0/24", "us-west-2b")], {"master_subnet_id": None}, f"public subnet, .*: {MASTER}"),
        ([("Public", MASTER, "172.17.8.0/24", "us-west-2b")], {}, "overlap 172.17.0.0/16, .*: Docker's bridge"),
    ],
)
def test_subnet_that_cannot_hold_its_nodes_is_refused(
    context: dict[str, Any], tmp_path: Path, subnets: list[Any], settings: dict[str, Any], message: str
) -> None:
    found = described([("Private", WORKERS, "100.64.0.0/20", "us-west-2b"), *subnets])
    with pytest.raises(SettingsError, match=message):
        synthesize(context | found, tmp_path, **settings)


def test_look_up_without_an_account_asks_for_credentials(context: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"vpc_id {VPC} needs credentials"):
        synthesize(context, tmp_path, env=None)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"vpc_id": "10.0.0.0/16"}, "vpc_id must be vpc- and 8 or 17 hex digits, got '10.0.0.0/16'"),
        ({"vpc_id": VPC}, f"subnet_id must be a subnet of vpc_id {VPC}$"),
        ({"subnet_id": WORKERS}, "subnet_id must not be set without vpc_id"),
        ({**SETTINGS, "subnet_id": "vpc-01234567"}, "subnet_id must be subnet- and 8 or 17 hex digits"),
        ({**SETTINGS, "vpc_cidr": "10.8.0.0/16"}, "vpc_cidr must not be set with vpc_id: the subnets determine"),
        (
            {**SETTINGS, "availability_zone": "us-west-2b"},
            "zone must not be set with vpc_id: the subnet determines the zone",
        ),
        ({"vpc": VPC}, "unknown setting 'vpc', did you mean vpc_id?"),
    ],
)
def test_incomplete_settings_of_an_existing_network_are_refused(context: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ClusterProps.from_context(context)


def test_worker_count_in_an_existing_subnet_is_not_limited_by_vpc_cidr() -> None:
    assert ClusterProps.from_context({**SETTINGS, "worker_count": 400}).worker_count == 400


def test_lustre_may_connect_to_the_nodes_from_anywhere_in_the_vpc(context: dict[str, Any], tmp_path: Path) -> None:
    template, _ = synthesize(context | LOOKED_UP, tmp_path, shared_storage="lustre:fs-0123456789abcdef0")
    rules = [
        {(rule["CidrIp"], rule["FromPort"], rule["ToPort"]) for rule in group.get("SecurityGroupIngress", [])}
        for group in resources(template, "EC2::SecurityGroup")
    ]
    both = {(block, *span) for block in ("10.8.0.0/24", "100.64.0.0/20") for span in ((988, 988), (1018, 1023))}
    assert rules.count(both) == 2


def test_master_may_query_lustre_without_naming_it(context: dict[str, Any], tmp_path: Path) -> None:
    # FSx defines no resource for the call: a statement that names the file system allows nothing on AWS.
    template, _ = synthesize(context | LOOKED_UP, tmp_path, shared_storage="lustre:fs-0123456789abcdef0")
    found = [
        (statement["Effect"], statement["Resource"])
        for policy in resources(template, "IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if "fsx:DescribeFileSystems" in statement["Action"]
    ]
    assert found == [("Allow", "*")]
