"""Read from the synthesized template what the nodes' roles may do, and which resources the stack creates."""

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

Template = dict[str, Any]
ALWAYS: Final = "always"
WHEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "not `private`": {"key_name": "KEY", "ssh_location": "203.0.113.0/24"},
    "`private`": {"key_name": "KEY", "private": True},
}
"""Settings of the two templates, by the words of their column."""
CONTEXT: Final = {"@aws-cdk/core:annotationsInValidationReport": False}
"""Context with which a synth prints no warnings."""
HASH: Final = re.compile("[0-9a-f]{64}")
ROLE: Final = re.compile("Roles(Master|Worker)")
"""Matches the logical ID of a node's role."""


class Permission(NamedTuple):
    """One action on one resource, which a role allows or denies."""

    effect: str
    role: str
    action: str
    resource: str
    condition: str


class Row(NamedTuple):
    """Actions that have everything else in common."""

    effect: str
    roles: str
    actions: tuple[str, ...]
    resource: str
    condition: str
    when: str


def synthesize(settings: Mapping[str, Any]) -> Template:
    """Return the template of these settings, with cdk.json's context."""
    import aws_cdk as cdk  # here, as it takes a second

    from stacks.settings.props import ClusterProps
    from stacks.stack import ClusterStack

    context = json.loads((Path(__file__).resolve().parents[1] / "cdk.json").read_text())["context"] | CONTEXT
    with tempfile.TemporaryDirectory() as directory:
        app = cdk.App(
            context=context, post_cli_context=CONTEXT, outdir=directory, builtin_cloud_formation_validation=False
        )
        ClusterStack(app, "ClusterStack", props=ClusterProps(**settings))
        app.synth()
        return dict(json.loads((Path(directory) / "ClusterStack.template.json").read_text()))


def permission_rows(templates: Mapping[str, Template]) -> list[Row]:
    """Return the rows of the table, Allow first, for the templates by the words of their column."""
    found = defaultdict[Permission, set[str]](set)
    for when, template in templates.items():
        for permission in _permissions(template):
            found[permission].add(when)
    whens = {permission: ALWAYS if len(names) == len(templates) else min(names) for permission, names in found.items()}
    roles = defaultdict[Permission, set[str]](set)
    for permission, when in whens.items():
        roles[permission._replace(role=when)].add(permission.role)
    actions = defaultdict[Row, set[str]](set)
    for permission, names in roles.items():
        row = Row(
            effect=permission.effect,
            roles=" and ".join(sorted(names)),
            actions=(),
            resource=permission.resource,
            condition=permission.condition,
            when=permission.role,
        )
        actions[row].add(permission.action)
    return sorted(row._replace(actions=tuple(sorted(names))) for row, names in actions.items())


def resource_types(template: Template) -> list[str]:
    """Return the types of the template's resources."""
    return sorted({resource["Type"] for resource in template["Resources"].values()})


def _permissions(template: Template) -> Iterator[Permission]:
    resources = template["Resources"]
    for policy in resources.values():
        if policy["Type"] == "AWS::IAM::Policy":
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                for role in policy["Properties"]["Roles"]:
                    for action in _listed(statement["Action"]):
                        for resource in _listed(statement["Resource"]):
                            yield Permission(
                                effect=statement["Effect"],
                                role=_role(role["Ref"]),
                                action=action,
                                resource=HASH.sub("HASH", _text(resource, resources)),
                                condition=json.dumps(statement["Condition"]) if "Condition" in statement else "",
                            )


def _role(logical_id: str) -> str:
    match = ROLE.search(logical_id)
    return match[1].lower() if match else logical_id


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any, resources: Mapping[str, Any]) -> str:
    """Return a value of the template as text: a resource as its type, AWS::Region as REGION."""
    if isinstance(value, str):
        return re.sub(r"\$\{AWS::(\w+)\}", lambda match: _pseudo(match[1]), value)
    [(function, argument)] = value.items()
    if function == "Fn::Join":
        return str(argument[0]).join(_text(part, resources) for part in argument[1])
    if function == "Fn::Sub":
        return _text(argument, resources)
    name = argument[0] if function == "Fn::GetAtt" else argument
    return f"<{resources[name]['Type']}>" if name in resources else _pseudo(name.removeprefix("AWS::"))


def _pseudo(name: str) -> str:
    return {"AccountId": "ACCOUNT", "StackId": "STACK"}.get(name, name.upper())
