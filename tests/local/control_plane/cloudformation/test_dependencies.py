"""Test which references of a template make one resource depend on another."""

from typing import Any

import pytest

from local.control_plane.cloudformation.dependencies import creation_order, dependencies


@pytest.mark.parametrize(
    "uses_first",
    [
        {"Properties": {"Name": {"Ref": "First"}}},
        {"Properties": {"Names": [{"Fn::Join": ["", ["a", {"Fn::GetAtt": ["First", "Arn"]}]]}]}},
        {"Properties": {"Name": {"Fn::GetAtt": "First.Arn"}}},
        {"Properties": {"Name": {"Fn::Sub": "x-${First.Arn}"}}},
        {"Properties": {"Name": {"Fn::Sub": ["x-${Given}", {"Given": {"Ref": "First"}}]}}},
        {"Properties": {"Name": {"Fn::If": ["Condition", {"Ref": "First"}, "other"]}}},
        {"DependsOn": "First"},
        {"DependsOn": ["First"]},
    ],
)
def test_every_kind_of_reference_counts(uses_first: dict[str, Any]) -> None:
    resources = {"Second": uses_first, "First": {}}
    assert dependencies(resources) == {"Second": {"First"}, "First": set()}
    assert creation_order(resources) == ["First", "Second"]


def test_parameters_pseudo_parameters_and_literals_do_not_count() -> None:
    name = {"Fn::Sub": "${AWS::Region}${!First}"}
    resources = {"First": {}, "Second": {"Properties": {"Name": name, "Other": {"Ref": "Parameter"}}}}
    assert dependencies(resources) == {"First": set(), "Second": set()}


def test_circular_dependency_is_refused() -> None:
    with pytest.raises(ValueError, match="Circular dependency between resources"):
        creation_order({"First": {"DependsOn": "Second"}, "Second": {"DependsOn": "First"}})
