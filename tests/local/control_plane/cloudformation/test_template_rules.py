"""Test the rules of a template, which are checked before a stack changes."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.cloudformation.template_rules import failure
from local.control_plane.ec2.images import FAMILIES, image_id, parameter_name
from tests.local.control_plane.harness import Stacks
from tests.local.control_plane.templates import resource

WHY = "cidr cannot change"


def template(cidr: str, note: str = "one") -> dict[str, Any]:
    """Return a template whose parameter must keep the value that it had at creation."""
    return {
        "Parameters": {"Cidr": {"Type": "String", "Default": cidr}},
        "Rules": {
            "CidrIsFixed": {
                "Assertions": [{"Assert": {"Fn::Equals": [{"Ref": "Cidr"}, cidr]}, "AssertDescription": WHY}]
            }
        },
        "Resources": {"Log": resource("Logs::LogGroup", LogGroupName="log")},
        "Outputs": {"Note": {"Value": note}},
    }


KEPT: dict[str, Any] = {"Parameters": [{"ParameterKey": "Cidr", "UsePreviousValue": True}]}


def change_set(stacks: Stacks, body: dict[str, Any], kind: str, **arguments: Any) -> None:
    named = {"StackName": "stack", "ChangeSetName": "cdk-deploy-change-set"}
    stacks.cloudformation.create_change_set(TemplateBody=json.dumps(body), ChangeSetType=kind, **named, **arguments)
    stacks.cloudformation.execute_change_set(**named)


def test_rule_that_does_not_hold_refuses_the_creation(stacks: Stacks) -> None:
    given = [{"ParameterKey": "Cidr", "ParameterValue": "10.1.0.0/16"}]
    with pytest.raises(ClientError, match=rf"\(ValidationError\).*CreateStack operation: {WHY}$"):
        stacks.create(template("10.0.0.0/16"), Parameters=given)
    with pytest.raises(ClientError, match=rf"CreateChangeSet operation: {WHY}$"):
        change_set(stacks, template("10.0.0.0/16"), "CREATE", Parameters=given)
    assert stacks.cloudformation.describe_stacks()["Stacks"] == []


def test_refused_update_changes_nothing(stacks: Stacks) -> None:
    stacks.create(template("10.0.0.0/16"))
    changed = template("10.1.0.0/16", note="two")
    with pytest.raises(ClientError, match=rf"\(ValidationError\).*UpdateStack operation: {WHY}$"):
        stacks.update(changed, **KEPT)
    with pytest.raises(ClientError, match=rf"\(ValidationError\).*CreateChangeSet operation: {WHY}$"):
        change_set(stacks, changed, "UPDATE", **KEPT)
    assert stacks.status() == "CREATE_COMPLETE"
    assert stacks.outputs() == {"Note": "one"}


def test_update_keeps_the_value_through_other_updates(stacks: Stacks) -> None:
    stacks.names.append("stack")
    change_set(stacks, template("10.0.0.0/16"), "CREATE")
    change_set(stacks, template("10.0.0.0/16", note="two"), "UPDATE", **KEPT)
    stacks.update(template("10.0.0.0/16", note="three"), **KEPT)
    assert stacks.outputs() == {"Note": "three"}
    with pytest.raises(ClientError, match=WHY):
        stacks.update(template("10.1.0.0/16"), **KEPT)


def test_update_without_the_previous_value_takes_the_new_default(stacks: Stacks) -> None:
    stacks.create(template("10.0.0.0/16"))
    stacks.update(template("10.1.0.0/16", note="two"))
    assert stacks.status() == "UPDATE_COMPLETE"


def test_rules_see_what_ssm_parameters_hold(stacks: Stacks) -> None:
    def asserting(image: str) -> dict[str, Any]:
        rule = {"Assert": {"Fn::Contains": [[image], {"Ref": "Image"}]}, "AssertDescription": "wrong image"}
        parameter = {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": parameter_name(FAMILIES[0])}
        return {
            "Parameters": {"Image": parameter},
            "Rules": {"Image": {"Assertions": [rule]}},
            "Resources": {"Log": resource("Logs::LogGroup", LogGroupName="log")},
        }

    with pytest.raises(ClientError, match="wrong image"):
        stacks.create(asserting("ami-1"))
    stacks.create(asserting(image_id(FAMILIES[0])))
    assert stacks.status() == "CREATE_COMPLETE"


A, B = {"Ref": "A"}, {"Ref": "B"}
YES, NO = {"Fn::Equals": [A, "a"]}, {"Fn::Equals": [A, "b"]}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (YES, True),
        (NO, False),
        ({"Fn::Equals": [{"Ref": "AWS::Region"}, "us-east-1"]}, True),
        ({"Fn::Equals": ["5", 5]}, True),
        ({"Fn::Not": [YES]}, False),
        ({"Fn::And": [YES, NO]}, False),
        ({"Fn::Or": [YES, NO]}, True),
        ({"Fn::Contains": [["a", "b"], A]}, True),
        ({"Fn::Contains": [["b"], A]}, False),
        ({"Fn::EachMemberEquals": [B, "b"]}, True),
        ({"Fn::EachMemberEquals": [["b", "a"], "b"]}, False),
        ({"Fn::EachMemberIn": [["a", "b"], ["b"]]}, False),
        ({"Fn::EachMemberIn": [B, ["b", "a"]]}, True),
    ],
)
def test_rule_function_returns_its_value(expression: dict[str, Any], holds: bool) -> None:
    values = {"A": "a", "B": ["b", "b"], "AWS::Region": "us-east-1"}
    rules = {"Rule": {"Assertions": [{"Assert": expression, "AssertDescription": WHY}]}}
    assert failure({"Rules": rules}, values) == (None if holds else WHY)
    conditional = {"RuleCondition": expression, "Assertions": [{"Assert": NO, "AssertDescription": WHY}]}
    assert failure({"Rules": {"Rule": conditional}}, values) == (WHY if holds else None)


def test_unknown_rule_function_is_named_in_the_error(stacks: Stacks) -> None:
    body = template("10.0.0.0/16")
    body["Rules"]["CidrIsFixed"]["Assertions"][0]["Assert"] = {"Fn::ValueOf": ["Cidr", "Attribute"]}
    with pytest.raises(ClientError, match="the local AWS does not know the rule function Fn::ValueOf"):
        stacks.create(body)
