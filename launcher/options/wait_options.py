"""Parse ``--wait`` and ``--wait-timeout``, and refuse a job that might never leave the queue."""

import argparse
import math
import re
from collections.abc import Mapping

from bootstrap.contract import GPU_COUNT_VARIABLE
from launcher.errors import UsageError
from launcher.hosts.hostfile import Host
from launcher.options.torchrun_options import parse_nnodes
from launcher.spec import NodeRange, QueuePolicy
from launcher.validate import whole_number

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds per unit."""
DEFAULT_TIMEOUT = "24h"
MAX_TIMEOUT = "30d"
DURATION = re.compile(r"([0-9]{1,7})([smhd])?")


def add_wait_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--wait`` and ``--wait-timeout``."""
    parser.add_argument(
        "--wait",
        action="store_true",
        help="queue until the nodes and their GPUs are free; see launch list",
    )
    parser.add_argument(
        "--wait-timeout",
        metavar="T",
        help=f"longest time in the queue, such as 90m, 24h or 7d (default: {DEFAULT_TIMEOUT}; no limit with --durable)",
    )


def may_wait(options: argparse.Namespace) -> bool:
    """Return True if the job waits for nodes in use, as ``--wait`` and ``--durable`` request."""
    return bool(options.wait or options.durable) and not options.force


def queue_policy(
    options: argparse.Namespace, environ: Mapping[str, str], hosts: tuple[Host, ...]
) -> QueuePolicy | None:
    """Return how the job waits, or None if it does not. Raises UsageError if it can never start."""
    if options.wait and options.force:
        raise UsageError("--wait waits for GPUs in use and cannot be combined with --force, which takes them")
    if options.wait_timeout is not None and not (options.wait or options.durable):
        raise UsageError("--wait-timeout requires --wait")
    # A durable job ends only when it is over or stopped.
    default_s = math.inf if options.durable else seconds(DEFAULT_TIMEOUT)
    timeout_s = default_s if options.wait_timeout is None else seconds(options.wait_timeout)
    if not may_wait(options):
        return None
    gpus = whole_number(environ.get(GPU_COUNT_VARIABLE) or "0", name=f"${GPU_COUNT_VARIABLE}", minimum=0)
    slots = max(host.slots for host in hosts)
    if options.wait and 0 < gpus < slots:
        raise UsageError(f"--wait allows at most {gpus} ranks per node, one per GPU; got {slots}")
    return QueuePolicy(timeout_s=timeout_s, exclusive=options.wait or gpus > 0, nodes=_node_range(options, len(hosts)))


def _node_range(options: argparse.Namespace, count: int) -> NodeRange | None:
    """Return the number of nodes that the command line requests; None if it names none."""
    if options.launcher == "local":
        return None
    if (nodes := parse_nnodes(options)) is not None:
        return nodes
    if options.num_workers is not None:
        count = whole_number(options.num_workers, name=options.num_workers_option)
    elif options.num_proc is None:
        return None
    return NodeRange(min=count, max=count)


def seconds(text: str) -> int:
    """Parse a duration such as 90m; a bare number is in seconds. Raises UsageError."""
    match = DURATION.fullmatch(text)
    number = int(match[1]) * UNITS[match[2] or "s"] if match else 0
    if not 0 < number <= int(MAX_TIMEOUT[:-1]) * UNITS["d"]:
        raise UsageError(
            f"--wait-timeout must be a duration such as 90m, 24h or 7d, at most {MAX_TIMEOUT}, got {text!r}"
        )
    return number
