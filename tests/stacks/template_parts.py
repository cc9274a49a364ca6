"""Find parts of a synthesized template."""

from typing import Any

Template = dict[str, Any]


def resources(template: Template, kind: str) -> list[dict[str, Any]]:
    return [resource for resource in template["Resources"].values() if resource["Type"] == kind]


def logical_id(template: Template, kind: str, part: str) -> str:
    [found] = [k for k, r in template["Resources"].items() if r["Type"] == kind and part in k]
    return str(found)


def launch_data(template: Template) -> list[dict[str, Any]]:
    return [r["Properties"]["LaunchTemplateData"] for r in resources(template, "AWS::EC2::LaunchTemplate")]
