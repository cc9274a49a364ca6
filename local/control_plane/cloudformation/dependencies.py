"""Find what each resource of a template refers to, and an order in which to create them."""

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

_SUBSTITUTED = re.compile(r"\$\{([^!.}]+)[^}]*\}")


def dependencies(resources: dict[str, Any]) -> dict[str, set[str]]:
    """Return the logical IDs that must exist before each logical ID."""
    return {name: {*_references(resource)} & {*resources} - {name} for name, resource in resources.items()}


def creation_order(resources: dict[str, Any]) -> list[str]:
    """Return the logical IDs, each after everything that it depends on."""
    try:
        return [*TopologicalSorter(dependencies(resources)).static_order()]
    except CycleError as error:
        raise ValueError(f"Circular dependency between resources: [{', '.join(error.args[1][1:])}]") from error


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("Ref", "DependsOn") and isinstance(item, str):
                yield item
            elif key == "DependsOn":
                yield from item
            elif key == "Fn::GetAtt":
                yield item.split(".")[0] if isinstance(item, str) else item[0]
            elif key == "Fn::Sub":
                yield from _SUBSTITUTED.findall(item if isinstance(item, str) else item[0])
                yield from _references(item)
            else:
                yield from _references(item)
