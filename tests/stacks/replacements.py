"""Predict which resources CloudFormation would update, and which it would replace, for a changed template.

It replaces a resource when a create-only property changes or refers to a replaced resource. AWS lists these properties
in the schemas of its resource types (``createOnlyProperties`` and ``conditionalCreateOnlyProperties``; CloudFormation
CLI User Guide, "Resource type definition schema"), which cfn-lint includes.
"""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Template = dict[str, Any]

CONDITIONS_NOT_MET = {
    # Replaces the group only under an AutoScalingReplacingUpdate policy (AutoScalingGroup, UpdatePolicy).
    "AWS::AutoScaling::AutoScalingGroup": {"LaunchTemplate"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """Logical ids, by what happens to them."""

    added: set[str]
    removed: set[str]
    changed: set[str]
    """Resources with any difference, including the replaced ones."""
    replaced: set[str]


def compare(old: Template, new: Template) -> Update:
    """Return what an update from one template to the other changes."""
    before, after = old["Resources"], new["Resources"]
    kept = before.keys() & after.keys()
    replaced: set[str] = set()
    while found := {name for name in kept - replaced if _is_replaced(before[name], after[name], replaced)}:
        replaced |= found
    return Update(
        added=set(after.keys() - before.keys()),
        removed=set(before.keys() - after.keys()),
        changed={name for name in kept if before[name] != after[name]} | replaced,
        replaced=replaced,
    )


def _is_replaced(before: Template, after: Template, replaced: set[str]) -> bool:
    if before["Type"] != after["Type"]:
        return True
    old, new = before.get("Properties", {}), after.get("Properties", {})
    return any(
        old.get(name) != new.get(name) or replaced & {*_references(new.get(name))}
        for name in create_only(after["Type"]) - CONDITIONS_NOT_MET.get(after["Type"], set())
    )


@functools.cache
def create_only(kind: str) -> frozenset[str]:
    """Return the names of the top-level properties that only a new resource can change."""
    schemas = _schemas()
    region = json.loads((schemas / "providers/us-east-1.json").read_text())
    schema = json.loads((schemas / f"resources/{region[kind]}.json").read_text())
    pointers = [*schema.get("createOnlyProperties", []), *schema.get("conditionalCreateOnlyProperties", [])]
    return frozenset(pointer.split("/")[2] for pointer in pointers)


def _schemas() -> Path:
    spec = find_spec("cfnlint")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data/schemas"


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "Ref":
                yield item
            elif key == "Fn::GetAtt":
                yield item[0]
            else:
                yield from _references(item)
