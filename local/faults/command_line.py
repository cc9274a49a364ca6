"""Break things by hand in the current local AWS: ``local-aws fault``, and ``local-aws fault end`` undoes it."""

import argparse
import math
from collections.abc import Callable, Mapping

from local.aws.api_faults import SERVICES
from local.errors import UsageError
from local.faults.fault_types import FAULT_TYPES, FaultType
from local.faults.faults import SPOT_NOTICE_S, Faults
from local.faults.targets import FaultTarget

MAX_NOTICE_S = 86400
NODE = "instance id, host name, or the end of that: worker2, master"
NODE_FAULTS: Mapping[str, FaultType] = {name: fault for name, fault in FAULT_TYPES.items() if fault.report}
"""Faults whose only argument is a node."""
Add = Callable[..., argparse.ArgumentParser]
"""The ``add_parser`` of subcommands."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each fault, one that ends a fault, and one that ends all."""
    subcommands = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    for name, fault in NODE_FAULTS.items():
        subcommands.add_parser(name, help=fault.help).add_argument("node", metavar="NODE", help=NODE)
    notice = subcommands.add_parser(
        "spot-notice", help="announce a node's interruption in its metadata, then terminate it"
    )
    notice.add_argument("node", metavar="NODE", help=NODE)
    notice.add_argument(
        "--seconds", type=_seconds, default=SPOT_NOTICE_S, help="time until the interruption; by default 120, as on AWS"
    )
    _add_partition(subcommands.add_parser, "isolate a node, or two from each other")
    for name, text in {"throttle": "throttling errors", "api-errors": "internal errors (HTTP 500)"}.items():
        refused = _add_refusals(subcommands.add_parser, name, f"answer nodes' calls to AWS's API with {text}")
        refused.add_argument(
            "fraction", metavar="FRACTION", nargs="?", type=_fraction, default=1.0, help="of the calls, up to 1"
        )
        refused.add_argument("--seed", type=int, default=0, help="random seed that decides which calls fail")
    outage = _add_api_outage(subcommands.add_parser, "cut the nodes off from AWS's API")
    outage.add_argument("--refuse", action="store_true", help="refuse connections instead of letting them time out")
    storage = subcommands.add_parser(
        "storage-outage", help="take the mount targets of all file systems away, or slow them down"
    )
    storage.add_argument("--slow", type=_seconds, metavar="SECONDS", help="answer mounts this late instead")
    _add_ends(subcommands.add_parser("end", help="undo a fault, named as it was caused: end freeze worker2"))
    subcommands.add_parser("heal", help="undo all that can be undone, everywhere")


def _add_ends(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="ended", required=True, metavar="FAULT")
    for name, fault in NODE_FAULTS.items():
        if fault.end_method is not None:
            subcommands.add_parser(name, help=f"undo {name}").add_argument("node", metavar="NODE", help=NODE)
    _add_partition(subcommands.add_parser, "undo a partition")
    for name in ("throttle", "api-errors"):
        _add_refusals(subcommands.add_parser, name, f"undo {name}")
    _add_api_outage(subcommands.add_parser, "restore the nodes' access to AWS's API")
    subcommands.add_parser("storage-outage", help="restore the mount targets")


def _add_partition(add: Add, text: str) -> None:
    partition = add("partition", help=text)
    partition.add_argument("node", metavar="NODE", help=NODE)
    partition.add_argument("other", metavar="OTHER", nargs="?", help="second node; by default everything, AWS included")


def _add_refusals(add: Add, name: str, text: str) -> argparse.ArgumentParser:
    refused = add(name, help=text)
    refused.add_argument(
        "service", metavar="SERVICE", nargs="?", type=_service, default="all", help=f"{', '.join(SERVICES)} or all"
    )
    refused.add_argument("--node", help="the calls of one node only")
    return refused


def _add_api_outage(add: Add, text: str) -> argparse.ArgumentParser:
    outage = add("api-outage", help=text)
    outage.add_argument("node", metavar="NODE", nargs="?", help=f"{NODE}; by default all nodes")
    return outage


def _service(text: str) -> str | None:
    """Return a service's name, or None for all services."""
    if text not in (*SERVICES, "all"):
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(SERVICES)} or all, got {text!r}")
    return None if text == "all" else text


def _fraction(text: str) -> float:
    fraction = _number(text)
    if not 0 < fraction <= 1:
        raise argparse.ArgumentTypeError(f"must be a number above 0, at most 1, got {text!r}")
    return fraction


def _seconds(text: str) -> float:
    seconds = _number(text)
    if not 0 <= seconds <= MAX_NOTICE_S:
        raise argparse.ArgumentTypeError(f"must be seconds from 0 to {MAX_NOTICE_S}, got {text!r}")
    return seconds


def _number(text: str) -> float:
    """Parse a number; for other text return NaN, which is in no range."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def run_command(faults: Faults, options: argparse.Namespace) -> int:
    """Execute the command line, and print what was done. Raises LocalError."""
    print(_act(faults, options))
    return 0


def _act(faults: Faults, options: argparse.Namespace) -> str:
    match options.fault:
        case "heal":
            faults.heal()
            return "healed all that can be undone"
        case "end":
            return _end(faults, options)
        case "storage-outage":
            faults.storage_outage(slow_s=options.slow)
            slowed = options.slow is not None
            return f"slowed mounts down by {options.slow:g} s" if slowed else "took the mount targets away"
        case "throttle" | "api-errors":
            return _refuse_requests(faults, options)
        case "api-outage":
            return _cut_api(faults, options)
        case "partition":
            node, other = _two_targets(faults, options)
            faults.partition(node.instance_id, other.instance_id if other else None)
            return f"isolated {node} from {other or 'everything'}"
    node = faults.target(options.node)
    if options.fault == "spot-notice":
        faults.spot_notice(node.instance_id, seconds=options.seconds)
        return f"gave notice to {node}: it ends in {options.seconds:g} s"
    fault = NODE_FAULTS[options.fault]
    fault.begin(faults, node.instance_id)
    return f"{fault.report} {node}"


def _end(faults: Faults, options: argparse.Namespace) -> str:
    """Undo a fault. Raises LocalError."""
    match options.ended:
        case "storage-outage":
            faults.end_storage_outage()
            return "ended storage-outage"
        case "throttle" | "api-errors":
            node = _target_or_all(faults, options)
            end = faults.end_throttle if options.ended == "throttle" else faults.end_api_errors
            end(options.service, name=node.instance_id if node else None)
            return f"ended {options.ended} of {_calls(node, options)}"
        case "api-outage":
            node = _target_or_all(faults, options)
            faults.end_api_outage(node.instance_id if node else None)
            return f"ended api-outage of {node or 'all nodes'}"
        case "partition":
            one, other = _two_targets(faults, options)
            faults.end_partition(one.instance_id, other.instance_id if other else None)
            return f"ended partition of {one} from {other or 'everything'}"
    target = faults.target(options.node)
    NODE_FAULTS[options.ended].end(faults, target.instance_id)
    return f"ended {options.ended} of {target}"


def _two_targets(faults: Faults, options: argparse.Namespace) -> tuple[FaultTarget, FaultTarget | None]:
    return faults.target(options.node), faults.target(options.other) if options.other else None


def _target_or_all(faults: Faults, options: argparse.Namespace) -> FaultTarget | None:
    return faults.target(options.node) if options.node else None


def _cut_api(faults: Faults, options: argparse.Namespace) -> str:
    if options.node and options.refuse:
        raise UsageError("--refuse cannot be combined with a node")
    node = _target_or_all(faults, options)
    faults.api_outage(node.instance_id if node else None, refuse=options.refuse)
    return f"cut off {node or 'all nodes'} from AWS's API"


def _refuse_requests(faults: Faults, options: argparse.Namespace) -> str:
    throttles, node = options.fault == "throttle", _target_or_all(faults, options)
    begin = faults.throttle if throttles else faults.api_errors
    name = node.instance_id if node else None
    begin(options.service, fraction=options.fraction, name=name, seed=options.seed)
    return f"{'throttled' if throttles else 'failed'} {100 * options.fraction:.4g}% of {_calls(node, options)}"


def _calls(node: FaultTarget | None, options: argparse.Namespace) -> str:
    return f"the calls from {node or 'all nodes'} to {options.service or 'all services'}"
