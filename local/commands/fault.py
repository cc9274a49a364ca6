"""Break things by hand in the current local AWS: ``local-aws fault``, and ``local-aws fault end`` undoes it."""

import argparse
import math
from dataclasses import dataclass, field, replace
from typing import Any

from local.control_plane.api_faults import SERVICES
from local.errors import UsageError
from local.faults.fault_decorator import FAULT_TYPES, Arguments
from local.faults.faults import SPOT_NOTICE_S, Faults
from local.faults.targets import FaultTarget

MAX_NOTICE_S = 86400
NODE = "instance id, host name, or the end of that: worker2, master"


@dataclass(frozen=True, kw_only=True, slots=True)
class Invocation:
    """Arguments with which a fault begins or ends, and the text of what it affects."""

    positional: tuple[str | None, ...]
    target: str
    options: dict[str, Any] = field(default_factory=dict)
    report: str | None = None
    """Report once the fault has begun; None to use the report of the fault's type."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each fault, one that ends a fault, and one that ends all."""
    subcommands = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    for name, fault in FAULT_TYPES.items():
        if fault.on_command_line:
            subparser = subcommands.add_parser(name, help=fault.help)
            _add_target(subparser, fault.arguments)
            _add_options(subparser, fault.arguments)
    end = subcommands.add_parser("end", help="undo a fault, named as it was caused: end freeze worker2")
    endings = end.add_subparsers(dest="ended", required=True, metavar="FAULT")
    for name, fault in FAULT_TYPES.items():
        if fault.on_command_line and fault.end is not None:
            _add_target(endings.add_parser(name, help=f"undo {name}"), fault.arguments)
    subcommands.add_parser("undo-all", help="undo all that can be undone, everywhere")


def _add_target(parser: argparse.ArgumentParser, arguments: Arguments) -> None:
    """Add the arguments that say what a fault affects; its end takes the same."""
    match arguments:
        case Arguments.NODE | Arguments.NODE_AND_SECONDS:
            parser.add_argument("node", metavar="NODE", help=NODE)
        case Arguments.NODE_AND_OTHER:
            parser.add_argument("node", metavar="NODE", help=NODE)
            parser.add_argument(
                "other", metavar="OTHER", nargs="?", help="second node; by default everything, AWS included"
            )
        case Arguments.API_REQUESTS:
            services = f"{', '.join(SERVICES)} or all"
            parser.add_argument("service", metavar="SERVICE", nargs="?", type=_service, default="all", help=services)
            parser.add_argument("--node", help="the calls of one node only")
        case Arguments.NODE_OR_ALL:
            parser.add_argument("node", metavar="NODE", nargs="?", help=f"{NODE}; by default all nodes")


def _add_options(parser: argparse.ArgumentParser, arguments: Arguments) -> None:
    """Add the arguments that only the start of a fault takes."""
    match arguments:
        case Arguments.NODE_AND_SECONDS:
            text = "time until the interruption; by default 120, as on AWS"
            parser.add_argument("--seconds", type=_seconds, default=SPOT_NOTICE_S, help=text)
        case Arguments.API_REQUESTS:
            parser.add_argument(
                "fraction", metavar="FRACTION", nargs="?", type=_fraction, default=1.0, help="of the calls, up to 1"
            )
            parser.add_argument("--seed", type=int, default=0, help="random seed that decides which calls fail")
        case Arguments.NODE_OR_ALL:
            parser.add_argument(
                "--refuse", action="store_true", help="refuse connections instead of letting them time out"
            )
        case Arguments.MOUNT_DELAY:
            parser.add_argument("--slow", type=_seconds, metavar="SECONDS", help="answer mounts this late instead")


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
    if options.fault == "undo-all":
        faults.undo_all()
        return "undid all that can be undone"
    if options.fault == "end":
        return _end(faults, options)
    fault = FAULT_TYPES[options.fault]
    invocation = _begin_invocation(faults, fault.arguments, options)
    fault.begin(faults, *invocation.positional, **invocation.options)
    return invocation.report or fault.report.format(target=invocation.target)


def _end(faults: Faults, options: argparse.Namespace) -> str:
    fault = FAULT_TYPES[options.ended]
    if fault.end is None:
        raise UsageError(f"{options.ended} cannot be undone")
    invocation = _invocation(faults, fault.arguments, options)
    fault.end(faults, *invocation.positional, **invocation.options)
    return f"ended {options.ended} of {invocation.target}"


def _invocation(faults: Faults, arguments: Arguments, options: argparse.Namespace) -> Invocation:
    """Resolve the arguments of `_add_target`."""
    if arguments is Arguments.MOUNT_DELAY:
        return Invocation(positional=(), target="all file systems")
    node = _find_target(faults, options.node)
    instance_id = node.instance_id if node else None
    match arguments:
        case Arguments.NODE_AND_OTHER:
            other = _find_target(faults, options.other)
            target = f"{node} from {other or 'everything'}"
            return Invocation(positional=(instance_id, other.instance_id if other else None), target=target)
        case Arguments.API_REQUESTS:
            target = f"the calls from {node or 'all nodes'} to {options.service or 'all services'}"
            return Invocation(positional=(options.service,), target=target, options={"name": instance_id})
    return Invocation(positional=(instance_id,), target=str(node or "all nodes"))


def _begin_invocation(faults: Faults, arguments: Arguments, options: argparse.Namespace) -> Invocation:
    """Resolve the arguments of `_add_target` and `_add_options`."""
    if arguments is Arguments.NODE_OR_ALL and options.node and options.refuse:
        raise UsageError("--refuse cannot be combined with a node")
    resolved = _invocation(faults, arguments, options)
    target, report = resolved.target, resolved.report
    added: dict[str, Any] = {}
    match arguments:
        case Arguments.NODE_AND_SECONDS:
            target, added = f"{target}: it ends in {options.seconds:g} s", {"seconds": options.seconds}
        case Arguments.API_REQUESTS:
            target = f"{100 * options.fraction:.4g}% of {target}"
            added = {"fraction": options.fraction, "seed": options.seed}
        case Arguments.NODE_OR_ALL:
            added = {"refuse": options.refuse}
        case Arguments.MOUNT_DELAY:
            if options.slow is not None:
                report = f"slowed mounts down by {options.slow:g} s"
            added = {"slow_s": options.slow}
    return replace(resolved, target=target, options={**resolved.options, **added}, report=report)


def _find_target(faults: Faults, name: str | None) -> FaultTarget | None:
    return faults.target(name) if name else None
