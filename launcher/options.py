"""The command line of ``launch``, turned into one Job."""

import argparse
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bootstrap.contract import (
    GPU_COUNT_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
)
from launcher.errors import UsageError
from launcher.hosts import read_hosts
from launcher.ranks import RANK_VARIABLES

LAUNCHERS = ("ssh",)
MOST_RANKS_PER_NODE = 256
"""More than any machine has GPUs; stops a slip of the keyboard from starting thousands."""

MOST_DIGITS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to run, and where."""

    hosts: tuple[str, ...]
    """The nodes of the job, in rank order."""
    nproc_per_node: int
    """Ranks on each node."""
    environment: Mapping[str, str]
    """Variables that every rank gets on top of its node's."""
    command: tuple[str, ...]
    """The argument list that each rank runs."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> _Parser:
    parser = _Parser(
        prog="launch",
        allow_abbrev=False,
        description="Run a command on every node of the cluster, once a GPU, as one job.",
        epilog="The command may be one quoted word, which a shell then reads, or several words. "
        "What follows the command's name belongs to the command.",
    )
    parser.add_argument("-n", "--num-workers", metavar="N", help="nodes (all of the hosts file)")
    parser.add_argument("-H", "--hostfile", metavar="FILE", help=f"hosts (${WORKERS_PATH_VARIABLE})")
    parser.add_argument(
        "--nproc-per-node", metavar="K", help=f"ranks on a node (${GPU_COUNT_VARIABLE}, 1 without GPUs)"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY:VALUE",
        help="variable for every rank; KEY alone passes on this shell's value, unseen in process lists",
    )
    parser.add_argument("--launcher", default="ssh", help="how nodes are reached: ssh")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what every rank runs")
    return parser


def parse_options(arguments: Sequence[str], *, environ: Mapping[str, str]) -> Job:
    """The job that the command line asks for, with the node's variables for what is left out."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = ", ".join(sorted(name for name in parser._option_string_actions if name.startswith("--")))
        raise UsageError(f"unknown option {unknown[0]}, supported: {known}")
    if options.launcher not in LAUNCHERS:
        raise UsageError(f"--launcher must be {' or '.join(LAUNCHERS)}, got {options.launcher!r}")
    hosts = _hosts(options.hostfile, options.num_workers, environ)
    return Job(
        hosts=hosts,
        nproc_per_node=_ranks_per_node(options.nproc_per_node, environ),
        environment=dict(_variable(item, environ) for item in options.env),
        command=_command(options.command),
    )


def _hosts(path: str | None, count: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    hosts = read_hosts(Path(path or environ.get(WORKERS_PATH_VARIABLE) or WORKERS_FILE))
    # Not $DEEPLEARNING_WORKERS_COUNT: in a shell from before a node came or went it is out of date.
    wanted = len(hosts) if count is None else _whole_number(count, name="-n", least=1)
    if wanted > len(hosts):
        raise UsageError(f"-n must be at most {len(hosts)}, the hosts in the hosts file, got {wanted}")
    return hosts[:wanted]


def _ranks_per_node(count: str | None, environ: Mapping[str, str]) -> int:
    if count is not None:
        ranks = _whole_number(count, name="--nproc-per-node", least=1)
        if ranks > MOST_RANKS_PER_NODE:
            raise UsageError(f"--nproc-per-node must be at most {MOST_RANKS_PER_NODE}, got {ranks}")
        return ranks
    gpus = environ.get(GPU_COUNT_VARIABLE) or "0"
    return max(1, _whole_number(gpus, name=f"${GPU_COUNT_VARIABLE}", least=0))


def _whole_number(text: str, *, name: str, least: int) -> int:
    if len(text) > MOST_DIGITS and text.isdigit():  # Python itself refuses to read thousands of them
        raise UsageError(f"{name} must have at most {MOST_DIGITS} digits, got {reprlib.repr(text)}")
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise UsageError(f"{name} must be a whole number of at least {least}, got {text!r}")
    return int(text)


def _variable(item: str, environ: Mapping[str, str]) -> tuple[str, str]:
    key, colon, value = item.partition(":")
    if not key or "=" in key:
        raise UsageError(f"--env must be KEY:VALUE or KEY, got {item!r}")
    if key in RANK_VARIABLES:
        raise UsageError(f"--env must not set {key}, which differs from rank to rank")
    if not colon and key not in environ:
        raise UsageError(f"--env {key} passes on a variable that is not set here")
    return key, value if colon else environ[key]


def _command(words: Sequence[str]) -> tuple[str, ...]:
    command = tuple(words[1:] if words[:1] == ["--"] else words)
    if not command or not command[0]:
        raise UsageError("no command given, as in: launch python train.py")
    # One word is a line quoted for a shell, as launch.py takes it.
    return ("/bin/bash", "-c", command[0]) if len(command) == 1 else command
