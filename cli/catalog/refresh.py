"""Refresh stacks/catalog/gpu_types.json with ec2:DescribeInstanceTypes, and show what has changed.

    python -m cli.catalog.refresh us-east-1 us-west-2

A region describes only the types that it offers, so name several; types that none of them describes stay unchanged. The
program needs credentials with ec2:DescribeInstanceTypes, and changes nothing in AWS. ``python -m cli.costs.refresh``
does the same for prices.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from stacks.catalog.gpu_types import CATALOG_FILE
from stacks.prices.price_list import FALLBACK_REGION

Row = dict[str, Any]
_MIB_A_GIB: Final = 1024
_OURS: Final = ("successor",)
"""Keys of a row that EC2 does not provide."""
_NUMBERS: Final = re.compile(r"[0-9]+")


def rows(described: Sequence[Mapping[str, Any]]) -> dict[str, Row]:
    """Return rows for the NVIDIA types among EC2's descriptions."""
    types = ((str(info["InstanceType"]), info, _nvidia_gpu(info)) for info in described)
    return {name: _row(info, gpu) for name, info, gpu in types if gpu is not None and _is_known_layout(name, info)}


def _is_known_layout(name: str, described: Mapping[str, Any]) -> bool:
    """Return False, with a message, for a type that the catalog cannot represent: its EFA cards have gaps."""
    cards = _efa_cards(described)
    if not cards or cards == [*range(cards[0], len(described["NetworkInfo"]["NetworkCards"]))]:
        return True
    print(f"refresh: left {name} out: EFA on network cards {cards}, expected all from one card on", file=sys.stderr)
    return False


def _efa_cards(described: Mapping[str, Any]) -> list[int]:
    cards = described["NetworkInfo"]["NetworkCards"]
    return [card["NetworkCardIndex"] for card in cards if "efa" in card.get("InterfaceTypes", [])]


def _nvidia_gpu(described: Mapping[str, Any]) -> Mapping[str, Any] | None:
    gpus: list[Mapping[str, Any]] = (described.get("GpuInfo") or {}).get("Gpus", [])
    return next((gpu for gpu in gpus if gpu.get("Manufacturer") == "NVIDIA"), None)


def _row(described: Mapping[str, Any], gpu: Mapping[str, Any]) -> Row:
    network, part = described["NetworkInfo"], float(gpu.get("GpuPartitionSize", 1))
    efa_interfaces = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    disks = (described.get("InstanceStorageInfo") or {}).get("Disks", [{}])[0]
    row = {
        "gpu_model": gpu["Name"],
        "gpus": gpu["Count"] or gpu.get("LogicalGpuCount", 0),
        "gpu_mib": gpu["MemoryInfo"]["SizeInMiB"],
        "gpu_fraction": part,
        "vcpus": described["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": described["MemoryInfo"]["SizeInMiB"] // _MIB_A_GIB,
        "network": network["NetworkPerformance"],
        "network_cards": network["MaximumNetworkCards"],
        "efa_interfaces": efa_interfaces,
        "first_efa_card": min(_efa_cards(described), default=0),
        "nvme_disks": disks.get("Count", 0),
        "nvme_gb": disks.get("SizeInGB", 0),
        "capacity_block": "capacity-block" in described.get("SupportedUsageClasses", []),
        "arm": "arm64" in described["ProcessorInfo"]["SupportedArchitectures"],
    }
    # The loader's default is what most types have in common.
    usual = {"gpu_fraction": 1.0, "first_efa_card": 0, "capacity_block": False, "arm": False}
    return {name: value for name, value in row.items() if name not in usual or value != usual[name]}


def merge(known: Mapping[str, Row], found: Mapping[str, Row]) -> dict[str, Row]:
    """Merge the found rows into the known ones."""
    kept = {name: {key: row[key] for key in _OURS if key in row} for name, row in known.items()}
    return {**known, **{name: {**row, **kept.get(name, {})} for name, row in found.items()}}


def difference(old: Mapping[str, Row], new: Mapping[str, Row]) -> Iterator[str]:
    """Yield one line for each new type and each changed figure."""
    for name in sorted(new, key=_order):
        before, after = old.get(name), new[name]
        if before is None:
            yield f"+ {name}: {json.dumps(after)}"
            continue
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield f"  {name}: {key} {before.get(key)} -> {after.get(key)}"


def render(types: Mapping[str, Row], date: str) -> str:
    """Return the text of gpu_types.json, with one line per type for readable diffs."""
    lines = [f"    {json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types, key=_order)]
    return f'{{\n  "date": {json.dumps(date)},\n  "types": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def _order(name: str) -> tuple[str, int, str]:
    """Sort by family, the smallest size first."""
    family, _, size = name.partition(".")
    times = _NUMBERS.search(size)
    return family, int(times[0]) if times else 0 if size != "metal" else 1000, size


def main(arguments: Sequence[str]) -> int:
    """Show the difference from EC2's figures in the named regions, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m cli.catalog.refresh", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("regions", nargs="*", default=[FALLBACK_REGION], metavar="REGION")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file would change")
    options = parser.parse_args(arguments)
    known: dict[str, Row] = json.loads(CATALOG_FILE.read_text())["types"]
    new = known
    try:
        for region in options.regions:
            ec2: Any = boto3.Session().client("ec2", region_name=region)
            pages = ec2.get_paginator("describe_instance_types").paginate()
            new = merge(new, rows([info for page in pages for info in page["InstanceTypes"]]))
    except (ClientError, BotoCoreError) as error:
        print(f"refresh: {error}", file=sys.stderr)
        return 1
    changes = list(difference(known, new))
    print("\n".join(changes) or "nothing has changed")
    if options.check:
        return 1 if changes else 0
    CATALOG_FILE.write_text(render(new, f"{datetime.now(timezone.utc):%Y-%m-%d}"))
    print(f"wrote {CATALOG_FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
