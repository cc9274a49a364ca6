"""``local-aws fault``: break things by hand in the local AWS that one is in."""

import argparse
import math

from local.aws.failures import SERVICES
from local.errors import UsageError
from local.faults.harness import SPOT_NOTICE_S, Faults

LONGEST_NOTICE_S = 86400
NODE = "instance id, host name, or the end of that: worker2, master"
ON_ONE_NODE = {
    "kill": "all its processes end at once, as when its host crashes",
    "terminate": "EC2 terminates it",
    "reboot": "EC2 reboots it",
    "freeze": "it hangs: nothing runs, nothing answers",
    "thaw": "it goes on",
    "kill-agent": "SIGKILL to its agent",
    "rebalance-recommendation": "its metadata service says that a spot interruption is likely",
    "fill-disk": "its disk is full",
    "free-disk": "its disk has room again",
    "metadata-outage": "its metadata service does not answer",
    "metadata-back": "its metadata service answers again",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The faults as verbs."""
    verbs = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    for verb, text in ON_ONE_NODE.items():
        verbs.add_parser(verb, help=text).add_argument("node", metavar="NODE", help=NODE)
    notice = verbs.add_parser("spot-notice", help="its metadata service announces its end, and then it ends")
    notice.add_argument("node", metavar="NODE", help=NODE)
    notice.add_argument("--seconds", type=_seconds, default=SPOT_NOTICE_S, help="until then; by default 120, as on AWS")
    for verb, text in {"partition": "cut a node off, or two from each other", "reconnect": "undo that"}.items():
        cut = verbs.add_parser(verb, help=text)
        cut.add_argument("node", metavar="NODE", help=NODE)
        cut.add_argument("other", metavar="OTHER", nargs="?", help="left out: from everybody, AWS included")
    for verb, text in {"throttle": "throttling errors", "api-errors": "internal errors (HTTP 500)"}.items():
        refused = verbs.add_parser(verb, help=f"AWS's API answers nodes with {text}; 0 ends it")
        refused.add_argument(
            "service", metavar="SERVICE", nargs="?", type=_service, default="all", help=f"{', '.join(SERVICES)} or all"
        )
        refused.add_argument("share", metavar="SHARE", nargs="?", type=_share, default=1.0, help="of the calls, 0 to 1")
        refused.add_argument("--node", help="of one node only")
        refused.add_argument("--seed", type=int, default=0, help="decides which calls")
    outage = verbs.add_parser("api-outage", help="AWS's API cannot be reached from nodes")
    outage.add_argument("node", metavar="NODE", nargs="?", help="left out: from all")
    outage.add_argument("--refuse", action="store_true", help="connections are refused instead of timing out")
    verbs.add_parser("api-back", help="it can again").add_argument("node", metavar="NODE", nargs="?")
    verbs.add_parser("heal", help="undo all that can be undone, everywhere")


def _service(text: str) -> str | None:
    """None for all."""
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
    if not 0 <= seconds <= LONGEST_NOTICE_S:
        raise argparse.ArgumentTypeError(f"must be seconds from 0 to {LONGEST_NOTICE_S}, got {text!r}")
    return seconds


def _number(text: str) -> float:
    """Not a number for what is none: it is in no range."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def act(faults: Faults, options: argparse.Namespace) -> int:
    """Do what the command line says. Raises LocalError."""
    match options.fault:
        case "heal":
            faults.heal()
        case "partition" | "reconnect":
            getattr(faults, options.fault)(options.node, options.other)
        case "spot-notice":
            faults.spot_notice(options.node, seconds=options.seconds)
        case "throttle" | "api-errors":
            _refuse_requests(faults, options)
        case "api-outage":
            if options.node and options.refuse:
                raise UsageError("--refuse is for all nodes")
            faults.api_outage(options.node, refuse=options.refuse)
        case "api-back":
            faults.api_back(options.node)
        case verb:
            getattr(faults, verb.replace("-", "_"))(options.node)
    return 0


def _refuse_requests(faults: Faults, options: argparse.Namespace) -> None:
    throttles = options.fault == "throttle"
    if options.share == 0:
        stop = faults.stop_throttling if throttles else faults.stop_api_errors
        stop(options.service, name=options.node)
    else:
        start = faults.throttle if throttles else faults.api_errors
        start(options.service, share=options.share, name=options.node, seed=options.seed)
