"""Parse torchrun's options, so that of a torchrun line only the first word changes.

Names and meanings: "torchrun (Elastic Launch)", https://docs.pytorch.org/docs/stable/elastic/run.html. Options
without an equivalent are refused, with what to do instead (launcher.cli.unsupported_options).
"""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from launcher.errors import UsageError
from launcher.validate import whole_number

MEETING = ("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--master-addr", "--master-port", "--node-rank")
"""Options about how the ranks find each other, which launch does by itself: they never change the job."""
KEPT = ("--log-dir", "--redirects", "--tee", "--role")
"""Options that launch covers in part; one line says what it does and does not do (notes)."""
BACKENDS = ("c10d", "static")
"""Rendezvous backends that need no server besides the nodes."""
RANKED = ("torch", "horovod")
"""Frameworks whose processes have local ranks that launch knows."""
SCRIPT = re.compile(r"[\w@%+=:,./-]+\.py", re.ASCII)
"""Name of a Python file in which a shell would find nothing to expand (as in shlex.quote)."""
PYTHON = ("python", "-u")
COUNTED = ("auto", "gpu", "cpu")
"""Words that ``--nproc-per-node`` takes besides a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Hold the least and the largest number of nodes."""

    least: int
    most: int


def both(option: str) -> tuple[str, str]:
    """Return an option's two spellings, as torchrun has them; the last one is used in messages."""
    return "--" + option[2:].replace("-", "_"), option


def add_torchrun_options(parser: argparse.ArgumentParser) -> None:
    """Declare torchrun's options that launch calls otherwise."""
    group = parser.add_argument_group("torchrun's options", "so that of its command line only the first word changes")
    group.add_argument("--nnodes", metavar="N", help="-n; MIN:MAX for as many as there are, with --min-nodes MIN")
    group.add_argument("--standalone", action="store_true", help="--launcher local")
    group.add_argument("-m", "--module", action="store_true", help="the command is a Python module: python -m")
    group.add_argument(*both("--no-python"), action="store_true", help="run the command as it is, whatever its name")
    for option in MEETING:
        group.add_argument(*both(option), help=argparse.SUPPRESS)
    group.add_argument(
        *both("--local-ranks-filter"),
        metavar="N,...",
        help="show the output of these ranks of each node; logs keep all",
    )
    short = {"--redirects": ("-r",), "--tee": ("-t",)}
    for option in KEPT:
        group.add_argument(*short.get(option, ()), *both(option), help=argparse.SUPPRESS)


def nodes_asked(options: argparse.Namespace) -> Nodes | None:
    """Parse ``--nnodes``; None if it is left out."""
    if options.nnodes is None:
        return None
    least, colon, most = options.nnodes.partition(":")
    if options.num_workers is not None:
        raise UsageError("--nnodes and -n are the same: give one of them")
    if colon and options.min_nodes is not None:
        raise UsageError(f"--nnodes {options.nnodes} says --min-nodes too: give one of them")
    nodes = Nodes(
        least=whole_number(least, name="--nnodes"), most=whole_number(most if colon else least, name="--nnodes")
    )
    if nodes.least > nodes.most:
        raise UsageError(f"--nnodes must be N or MIN:MAX with MIN at most MAX, got {options.nnodes}")
    return nodes


def launcher_asked(options: argparse.Namespace) -> str:
    """Return ``--launcher``, which ``--standalone`` implies."""
    if options.standalone and options.launcher not in (None, "local"):
        raise UsageError(f"--standalone is --launcher local, got --launcher {options.launcher} as well")
    return options.launcher or ("local" if options.standalone else "ssh")


def ranks_counted(asked: str, *, gpus: int) -> int:
    """Return the ranks that auto, gpu or cpu stand for: this machine's GPUs or cores, taken for every node's."""
    if asked == "gpu" and not gpus:
        raise UsageError("--nproc-per-node gpu is for machines with GPUs, and this one has none")
    # As torch counts them: those that this process may use.
    return gpus if gpus and asked != "cpu" else len(os.sched_getaffinity(0))


def program(words: Sequence[str], options: argparse.Namespace) -> tuple[str, ...]:
    """Return what runs the command: Python for a module and for a .py file, unless the file starts by itself."""
    if options.module and options.no_python:
        raise UsageError("-m is for python, which --no-python leaves out: give one of them")
    if options.module:
        return (*PYTHON, "-m", *words)
    if words and not options.no_python and SCRIPT.fullmatch(words[0]) and not _starts_by_itself(words[0]):
        return (*PYTHON, *words)
    return tuple(words)


def _starts_by_itself(path: str) -> bool:
    """Return whether the file's first line names its interpreter, as a shell would use it."""
    return "/" in path and os.access(path, os.X_OK)


def notes(options: argparse.Namespace) -> tuple[str, ...]:
    """Say which options made no difference; UsageError if the job would differ without one."""
    given = _given(options, MEETING)
    backend, node_rank = given.get("--rdzv-backend", BACKENDS[0]), given.get("--node-rank", "0")
    if backend not in BACKENDS:
        raise UsageError(f"--rdzv-backend must be one of {', '.join(BACKENDS)}, or left out, got {backend!r}")
    if node_rank != "0":
        raise UsageError(f"--node-rank {node_rank}: launch starts every node by one line, that of --node-rank 0")
    given.pop("--rdzv-backend", None)
    said = []
    if given:
        said.append(f"not needed: {', '.join(given)}; launch has the ranks meet by itself, one line starts every node")
    kept = _given(options, KEPT)
    if (role := kept.pop("--role", "default")) != "default":
        said.append(f"not done: --role {role}; every rank has the role default")
    if kept:
        said.append(f"not done: {', '.join(kept)}; all output is shown and kept on its node, see launch logs")
    return tuple(said)


def _given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, str]:
    return {option: value for option in names if (value := getattr(options, option[2:].replace("-", "_")))}


def ranks_shown(options: argparse.Namespace, *, framework: str) -> frozenset[int] | None:
    """Parse ``--local-ranks-filter``; None for all ranks."""
    asked = options.local_ranks_filter
    if asked is None:
        return None
    if framework not in RANKED:
        raise UsageError(
            f"--local-ranks-filter is for --engine {' or '.join(RANKED)}, whose ranks launch starts itself"
        )
    return frozenset(whole_number(one.strip(), name="--local-ranks-filter", least=0) for one in asked.split(","))
