"""Render the file of prices, with one line per instance family for readable diffs."""

import json
from collections.abc import Mapping
from typing import Any


def render(regions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of price_list.json; ``instances`` maps each instance type to its price."""
    blocks = [f"  {json.dumps(region)}: {_region(regions[region])}" for region in sorted(regions)]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _region(prices: Mapping[str, Any]) -> str:
    plain = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in prices.items() if name != "instances"]
    families = _families(prices["instances"])
    lines = [f"      {json.dumps(family)}: {json.dumps(families[family])}" for family in sorted(families)]
    instances = '    "instances": {\n' + ",\n".join(lines) + "\n    }"
    return "{\n" + ",\n".join([*plain, instances]) + "\n  }"


def _families(instances: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Group the types by family, cheapest size first."""
    found: dict[str, dict[str, float]] = {}
    for name, price in sorted(instances.items(), key=lambda row: (row[1], row[0])):
        family, _, size = name.partition(".")
        found.setdefault(family, {})[size] = price
    return found
