"""Find parts of a synthesized template."""

from typing import Any

RESERVATION = "cr-0123456789abcdef0"

Template = dict[str, Any]


def resources(template: Template, kind: str) -> list[dict[str, Any]]:
    return [resource for resource in template["Resources"].values() if resource["Type"] == kind]


def logical_id(template: Template, kind: str, part: str) -> str:
    [found] = [k for k, r in template["Resources"].items() if r["Type"] == kind and part in k]
    return str(found)


def launch_data(template: Template) -> list[dict[str, Any]]:
    return [r["Properties"]["LaunchTemplateData"] for r in resources(template, "AWS::EC2::LaunchTemplate")]


def statements(template: Template, role: str) -> list[dict[str, Any]]:
    [policy] = [
        r["Properties"] for name, r in template["Resources"].items() if r["Type"] == "AWS::IAM::Policy" and role in name
    ]
    return list(policy["PolicyDocument"]["Statement"])


def actions(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return [action] if isinstance(action, str) else list(action)


def node_launch_data(template: Template, node: str) -> dict[str, Any]:
    found = template["Resources"][logical_id(template, "AWS::EC2::LaunchTemplate", node)]
    return dict(found["Properties"]["LaunchTemplateData"])
