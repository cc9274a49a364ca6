"""Limit what the account may run: ``local-aws capacity`` and ``local-aws quota``."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from local.control_plane.limits.limit_files import QUOTAS
from local.faults.limits import limit_capacity, set_quota

ANY: Final = "any"
SUBCOMMANDS: Final = ("capacity", "quota")


def add_arguments(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add both subcommands, with the ``add_parser`` of the command's subcommands."""
    capacity = add("capacity", help="limit the instances of a type in a zone")
    capacity.add_argument("instance_type", metavar="TYPE", help="p5.48xlarge, for example")
    capacity.add_argument("zone", metavar="ZONE", help="us-east-1a, for example")
    capacity.add_argument("count", metavar="N", type=_count, help="instances, running ones included, or any")
    capacity.add_argument("--spot", action="store_true", help="limit spot instances instead of On-Demand ones")
    quota = add("quota", help="set a quota of the account")
    quota.add_argument("quota", metavar="QUOTA", choices=[*QUOTAS], help=", ".join(QUOTAS))
    quota.add_argument("count", metavar="N", type=_count, help="vCPUs that may run, addresses, VPCs, or any")


def run_command(run_dir: Path, options: argparse.Namespace) -> int:
    """Execute the command line, and print what was done."""
    if options.subcommand == "quota":
        set_quota(run_dir, options.quota, options.count)
        unit = " vCPUs" if QUOTAS[options.quota].families else ""
        print(f"set the quota {options.quota} to {_format_count(options.count)}{unit}")
        return 0
    limit_capacity(run_dir, options.instance_type, options.zone, options.count, spot=options.spot)
    market = "spot" if options.spot else "On-Demand"
    print(
        f"{options.zone} has capacity for {_format_count(options.count)} {market} instances of {options.instance_type}"
    )
    return 0


def _count(text: str) -> int | None:
    if text == ANY:
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 or {ANY}, got {text!r}")
    return int(text)


def _format_count(count: int | None) -> str:
    return f"{ANY} number of" if count is None else str(count)
