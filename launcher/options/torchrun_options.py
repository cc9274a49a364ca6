"""Parse torchrun's options, so that a torchrun command works unchanged.

Names and meanings: "torchrun (Elastic Launch)", https://docs.pytorch.org/docs/stable/elastic/run.html. An option
without an equivalent is refused, with advice on what to do instead (launcher.options.unsupported_options).
"""

import argparse
import os
from collections.abc import Sequence

from launcher.errors import UsageError
from launcher.hosts.node_config import declared_nodes
from launcher.spec import NodeRange
from launcher.validate import whole_number

RENDEZVOUS_OPTIONS = ("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--master-addr", "--master-port", "--node-rank")
"""Rendezvous options; launch sets the rendezvous up itself, so they never change the job."""
IGNORED_OPTIONS = ("--log-dir", "--redirects", "--tee", "--role")
"""Options that launch ignores, with a note, because it always shows and keeps all output."""
BACKENDS = ("c10d", "static")
"""Rendezvous backends that need no server besides the nodes."""
RANKED_FRAMEWORKS = ("torch", "horovod")
"""Frameworks whose processes have local ranks known to launch."""
AUTO_COUNTS = ("auto", "gpu", "cpu")
"""Values of ``--nproc-per-node`` besides numbers."""


def spellings(option: str) -> tuple[str, str]:
    """Return torchrun's two spellings of an option; messages use the last one."""
    return "--" + option[2:].replace("-", "_"), option


def add_torchrun_options(parser: argparse.ArgumentParser) -> None:
    """Declare torchrun's options that launch lacks or names differently."""
    group = parser.add_argument_group("torchrun's options", "accepted so that a torchrun command works unchanged")
    group.add_argument("--nnodes", metavar="N", help="as -n; MIN:MAX: all hosts up to MAX, and --min-nodes MIN")
    group.add_argument("--standalone", action="store_true", help="as --launcher local")
    group.add_argument("-m", "--module", action="store_true", help="the command is a Python module: python -m")
    group.add_argument(
        *spellings("--no-python"), action="store_true", help="run the command itself, even if it is a .py file"
    )
    for option in RENDEZVOUS_OPTIONS:
        group.add_argument(*spellings(option), help=argparse.SUPPRESS)
    group.add_argument(
        *spellings("--local-ranks-filter"),
        metavar="N,...",
        help="show only these local ranks of each node; the logs keep all",
    )
    short = {"--redirects": ("-r",), "--tee": ("-t",)}
    for option in IGNORED_OPTIONS:
        group.add_argument(*short.get(option, ()), *spellings(option), help=argparse.SUPPRESS)


def parse_nnodes(options: argparse.Namespace) -> NodeRange | None:
    """Parse ``--nnodes``; None if it is absent."""
    if options.nnodes is None:
        return None
    low, colon, high = options.nnodes.partition(":")
    if options.num_workers is not None:
        raise UsageError("--nnodes cannot be combined with -n, which means the same")
    if colon and options.min_nodes is not None:
        raise UsageError(f"--nnodes {options.nnodes} cannot be combined with --min-nodes, which means the same")
    nodes = NodeRange(min=whole_number(low, name="--nnodes"), max=whole_number(high if colon else low, name="--nnodes"))
    if nodes.min > nodes.max:
        raise UsageError(f"--nnodes must be N or MIN:MAX with MIN at most MAX, got {options.nnodes}")
    return nodes


def launcher_option(options: argparse.Namespace) -> str:
    """Return ``--launcher``; ``--standalone`` implies a value."""
    if options.standalone and options.launcher not in (None, "local"):
        raise UsageError(
            f"--standalone implies --launcher local and cannot be combined with --launcher {options.launcher}"
        )
    return options.launcher or ("local" if options.standalone else "ssh")


def auto_ranks(word: str, *, gpus: int) -> int:
    """Return the ranks for auto, gpu or cpu: this machine's GPUs or cores, assumed for every node."""
    if word == "gpu" and not gpus:
        raise UsageError("--nproc-per-node gpu requires GPUs, and this machine has none")
    # Like torch, count the cores that this process may use.
    return gpus if gpus and word != "cpu" else len(os.sched_getaffinity(0))


def option_notes(options: argparse.Namespace) -> tuple[str, ...]:
    """Return notes about ignored options and idle nodes; UsageError if the job would differ without an option."""
    rendezvous = _values(options, RENDEZVOUS_OPTIONS)
    backend, node_rank = rendezvous.get("--rdzv-backend", BACKENDS[0]), rendezvous.get("--node-rank", "0")
    if backend not in BACKENDS:
        raise UsageError(f"--rdzv-backend must be one of {', '.join(BACKENDS)}, or left out, got {backend!r}")
    if node_rank != "0":
        raise UsageError(f"--node-rank must be 0 or left out, as one launch starts every node, got {node_rank}")
    rendezvous.pop("--rdzv-backend", None)
    notes = []
    if rendezvous:
        notes.append(f"ignored: {', '.join(rendezvous)} (launch sets up the rendezvous, and starts every node)")
    ignored = _values(options, IGNORED_OPTIONS)
    if (role := ignored.pop("--role", "default")) != "default":
        notes.append(f"ignored: --role {role} (every rank has the role default)")
    if ignored:
        notes.append(f"ignored: {', '.join(ignored)} (all output is shown, and kept on its node: see launch logs)")
    # --nnodes 1 beside it says that one node is meant.
    if options.standalone and options.nnodes is None and (nodes := declared_nodes() or 0) > 1:
        notes.append(f"--standalone: only this node trains; leave it out to train on all {nodes} nodes")
    return tuple(notes)


def _values(options: argparse.Namespace, names: Sequence[str]) -> dict[str, str]:
    return {option: value for option in names if (value := getattr(options, option[2:].replace("-", "_")))}


def shown_ranks(options: argparse.Namespace, *, framework: str) -> frozenset[int] | None:
    """Parse ``--local-ranks-filter``; None for all ranks."""
    ranks = options.local_ranks_filter
    if ranks is None:
        return None
    if framework not in RANKED_FRAMEWORKS:
        allowed = " or ".join(RANKED_FRAMEWORKS)
        raise UsageError(f"--local-ranks-filter requires --framework {allowed}, whose ranks launch starts itself")
    return frozenset(whole_number(rank.strip(), name="--local-ranks-filter", minimum=0) for rank in ranks.split(","))
