"""Break things by hand in the current local AWS: ``local-aws fault``."""

import argparse
import math
from collections.abc import Mapping

from local.aws.api_faults import SERVICES
from local.errors import UsageError
from local.faults.fault_types import FAULT_TYPES, REPAIRS, FaultType, Repair
from local.faults.faults import SPOT_NOTICE_S, Faults

MAX_NOTICE_S = 86400
NODE = "instance id, host name, or the end of that: worker2, master"
NODE_COMMANDS: Mapping[str, FaultType | Repair] = {
    **{name: fault for name, fault in FAULT_TYPES.items() if fault.report},
    **REPAIRS,
}
"""Faults and repairs whose only argument is a node."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each fault and each repair."""
    subcommands = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    for name, fault_or_repair in NODE_COMMANDS.items():
        subcommands.add_parser(name, help=fault_or_repair.help).add_argument("node", metavar="NODE", help=NODE)
    notice = subcommands.add_parser(
        "spot-notice", help="announce a node's interruption in its metadata, then terminate it"
    )
    notice.add_argument("node", metavar="NODE", help=NODE)
    notice.add_argument(
        "--seconds", type=_seconds, default=SPOT_NOTICE_S, help="time until the interruption; by default 120, as on AWS"
    )
    for subcommand, text in {
        "partition": "isolate a node, or two from each other",
        "reconnect": "undo a partition",
    }.items():
        cut = subcommands.add_parser(subcommand, help=text)
        cut.add_argument("node", metavar="NODE", help=NODE)
        cut.add_argument("other", metavar="OTHER", nargs="?", help="second node; by default everything, AWS included")
    for subcommand, text in {"throttle": "throttling errors", "api-errors": "internal errors (HTTP 500)"}.items():
        refused = subcommands.add_parser(
            subcommand, help=f"answer nodes' calls to AWS's API with {text}; share 0 ends it"
        )
        refused.add_argument(
            "service", metavar="SERVICE", nargs="?", type=_service, default="all", help=f"{', '.join(SERVICES)} or all"
        )
        refused.add_argument("share", metavar="SHARE", nargs="?", type=_share, default=1.0, help="of the calls, 0 to 1")
        refused.add_argument("--node", help="fail the calls of one node only")
        refused.add_argument("--seed", type=int, default=0, help="random seed that decides which calls fail")
    outage = subcommands.add_parser("api-outage", help="cut the nodes off from AWS's API")
    outage.add_argument(
        "node", metavar="NODE", nargs="?", help="instance id, host name, or the end of that; by default all nodes"
    )
    outage.add_argument("--refuse", action="store_true", help="refuse connections instead of letting them time out")
    subcommands.add_parser("api-back", help="restore the nodes' access to AWS's API").add_argument(
        "node", metavar="NODE", nargs="?"
    )
    storage = subcommands.add_parser(
        "storage-outage", help="take the mount targets of all file systems away, or slow them down"
    )
    storage.add_argument("--slow", type=_seconds, metavar="SECONDS", help="answer mounts this late instead")
    subcommands.add_parser("storage-back", help="restore the mount targets")
    subcommands.add_parser("heal", help="undo all that can be undone, everywhere")


def _service(text: str) -> str | None:
    """Return a service's name, or None for all services."""
    if text not in (*SERVICES, "all"):
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(SERVICES)} or all, got {text!r}")
    return None if text == "all" else text


def _share(text: str) -> float:
    share = _number(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text!r}")
    return share


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
        case "storage-outage" | "storage-back":
            return _change_storage(faults, options)
        case "throttle" | "api-errors":
            return _refuse_requests(faults, options)
        case "api-outage" | "api-back":
            return _cut_api(faults, options)
        case "partition" | "reconnect":
            return _cut_nodes(faults, options)
    node = faults.target(options.node)
    if options.fault == "spot-notice":
        faults.spot_notice(node.instance_id, seconds=options.seconds)
        return f"gave notice to {node}: it ends in {options.seconds:g} s"
    fault_or_repair = NODE_COMMANDS[options.fault]
    fault_or_repair.begin(faults, node.instance_id)
    return f"{fault_or_repair.report} {node}"


def _change_storage(faults: Faults, options: argparse.Namespace) -> str:
    if options.fault == "storage-back":
        faults.end_storage_outage()
        return "restored the mount targets"
    faults.storage_outage(slow_s=options.slow)
    return "took the mount targets away" if options.slow is None else f"slowed mounts down by {options.slow:g} s"


def _cut_nodes(faults: Faults, options: argparse.Namespace) -> str:
    node = faults.target(options.node)
    other = faults.target(options.other) if options.other else None
    change = faults.partition if options.fault == "partition" else faults.end_partition
    change(node.instance_id, other.instance_id if other else None)
    if options.fault == "partition":
        return f"isolated {node} from {other or 'everything'}"
    return f"reconnected {node} with {other or 'everything'}"


def _cut_api(faults: Faults, options: argparse.Namespace) -> str:
    if options.fault == "api-outage" and options.node and options.refuse:
        raise UsageError("--refuse cannot be combined with a node")
    node = faults.target(options.node) if options.node else None
    name, who = node.instance_id if node else None, node or "all nodes"
    if options.fault == "api-outage":
        faults.api_outage(name, refuse=options.refuse)
        return f"cut off {who} from AWS's API"
    faults.end_api_outage(name)
    return f"restored AWS's API for {who}"


def _refuse_requests(faults: Faults, options: argparse.Namespace) -> str:
    throttles = options.fault == "throttle"
    node = faults.target(options.node) if options.node else None
    name = node.instance_id if node else None
    calls = f"the calls from {node or 'all nodes'} to {options.service or 'all services'}"
    if options.share == 0:
        stop = faults.end_throttle if throttles else faults.end_api_errors
        stop(options.service, name=name)
        return f"ended {options.fault} of {calls}"
    start = faults.throttle if throttles else faults.api_errors
    start(options.service, share=options.share, name=name, seed=options.seed)
    return f"{'throttled' if throttles else 'failed'} {100 * options.share:.4g}% of {calls}"
