"""Check what a changed setting does to a running cluster, from the templates before and after."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from stacks.nodes import bundle
from tests.stacks.replacements import Template, Update, compare, create_only

Synthesize = Callable[..., Template]

BEFORE: dict[str, Any] = {
    "worker_count": 2,
    "key_name": "mine",
    "ssh_location": "203.0.113.0/24",
    "ami": "ami-0123456789abcdef0",
    "tags": {"team": "vision"},
}
NODES = {"AWS::EC2::LaunchTemplate"}
GROUPS = {"AWS::AutoScaling::AutoScalingGroup"}
CODE = {"AWS::IAM::Policy"}
"""Types that a change of code affects: a role may read only the one object that contains the code."""


@pytest.fixture(scope="module")
def before(synthesize: Synthesize) -> Template:
    return synthesize(**BEFORE)


def kinds(template: Template, names: Collection[str]) -> set[str]:
    return {str(template["Resources"][name]["Type"]) for name in names}


def in_place(before: Template, after: Template) -> Update:
    update = compare(before, after)
    assert (update.added, update.removed, update.replaced) == (set(), set(), set())
    return update


@pytest.mark.parametrize(
    "changed",
    [
        {"ami": "ami-0fedcba9876543210"},
        {"instance_type": "g6.4xlarge"},
        {"root_volume_gib": 300},
        {"key_name": "other"},
        {"key_name": None},
    ],
    ids=str,
)
def test_settings_of_a_node_change_only_the_launch_templates(
    synthesize: Synthesize, before: Template, changed: dict[str, Any]
) -> None:
    update = in_place(before, synthesize(**BEFORE | changed))
    assert kinds(before, update.changed) == NODES
    assert len(update.changed) == 2


def test_bootstrap_code_changes_the_launch_templates_and_what_nodes_may_read(
    synthesize: Synthesize, before: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "build", lambda: b"other code")
    update = in_place(before, synthesize(**BEFORE))
    assert kinds(before, update.changed) == NODES | CODE


def test_worker_count_changes_the_workers_group_alone(synthesize: Synthesize, before: Template) -> None:
    update = in_place(before, synthesize(**BEFORE | {"worker_count": 5}))
    assert kinds(before, update.changed) == GROUPS
    assert len(update.changed) == 1


@pytest.mark.parametrize("location", ["198.51.100.0/24", ("203.0.113.0/24", "198.51.100.0/24"), None])
def test_ssh_location_changes_one_security_group(
    synthesize: Synthesize, before: Template, location: str | tuple[str, ...] | None
) -> None:
    update = in_place(before, synthesize(**BEFORE | {"ssh_location": location}))
    assert kinds(before, update.changed) == {"AWS::EC2::SecurityGroup"}
    assert len(update.changed) == 1


@pytest.mark.parametrize("tags", [{"team": "speech"}, {}, {"team": "vision", "stage": "test"}], ids=str)
def test_tags_change_in_place(synthesize: Synthesize, before: Template, tags: dict[str, str]) -> None:
    update = in_place(before, synthesize(**BEFORE | {"tags": tags}))
    assert kinds(before, update.changed) >= NODES | GROUPS
    untagged = [_without_tags(template) for template in (before, synthesize(**BEFORE | {"tags": tags}))]
    assert untagged[0] == untagged[1]


@pytest.mark.parametrize("changed", [{"vpc_cidr": "10.1.0.0/16"}, {"availability_zone": "us-east-1b"}], ids=str)
def test_rule_forbids_a_change_that_would_replace_the_network(
    synthesize: Synthesize, before: Template, changed: dict[str, str]
) -> None:
    after = synthesize(**BEFORE | changed)
    assert kinds(before, compare(before, after).replaced) >= {"AWS::EC2::Subnet", "AWS::EC2::NatGateway"}
    [(name, value)] = changed.items()
    (broken,) = broken_rules(before, after)
    assert broken.startswith(f"{name} of a running cluster cannot change, got {value}: ")


def broken_rules(before: Template, after: Template) -> list[str]:
    """Return what the rules of a template report about the values with which a stack was created."""
    kept = {name: parameter.get("Default") for name, parameter in before["Parameters"].items()}
    return [
        assertion["AssertDescription"]
        for rule in after["Rules"].values()
        for assertion in rule["Assertions"]
        if (equal := assertion["Assert"].get("Fn::Equals")) and kept[equal[0]["Ref"]] != equal[1]
    ]


def test_another_bucket_is_refused_by_a_rule(synthesize: Synthesize, before: Template) -> None:
    (broken,) = broken_rules(before, synthesize(**BEFORE | {"bucket": "kept"}))
    assert broken.startswith("bucket of a running cluster cannot change, got kept: running nodes would lose their")


def test_create_only_properties_are_those_of_aws() -> None:
    assert "CidrBlock" in create_only("AWS::EC2::VPC")
    assert create_only("AWS::EC2::LaunchTemplate") == {"LaunchTemplateName"}


def test_replacement_reaches_what_refers_to_it_in_a_create_only_property() -> None:
    def template(cidr: str) -> Template:
        vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": cidr}}
        table = {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}}
        route = {"Type": "AWS::EC2::Route", "Properties": {"RouteTableId": {"Fn::GetAtt": ["Table", "RouteTableId"]}}}
        return {
            "Resources": {"Vpc": vpc, "Table": table, "Route": route, "Gateway": {"Type": "AWS::EC2::InternetGateway"}}
        }

    update = compare(template("10.0.0.0/16"), template("10.1.0.0/16"))
    assert update.replaced == update.changed == {"Vpc", "Table", "Route"}


def _without_tags(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_tags(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_tags(item) for key, item in value.items() if key not in ("Tags", "TagSpecifications")}
