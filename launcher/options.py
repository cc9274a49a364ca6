"""The command line of ``launch``, turned into one Job."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from bootstrap.contract import (
    GPU_COUNT_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
)
from launcher.errors import UsageError
from launcher.hosts import FORMS, MOST_SLOTS, Host, read_hosts
from launcher.numbers import whole_number
from launcher.ranks import RANK_VARIABLES

LAUNCHERS = ("ssh", "local")
LOCAL_HOST = "localhost"
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to run, and where."""

    hosts: tuple[Host, ...]
    """The nodes of the job, in rank order, each with its slots filled in."""
    local: bool
    """Whether the one node is this machine, reached without ssh."""
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
    parser.add_argument("-n", "--num-workers", metavar="N", help="nodes (all of the hosts file); ranks with local")
    parser.add_argument("-H", "--hostfile", metavar="FILE", help=f"{FORMS} a line (${WORKERS_PATH_VARIABLE})")
    parser.add_argument("--launcher", default="ssh", help="ssh: on the hosts; local: all ranks on this machine (ssh)")
    parser.add_argument("--nproc-per-node", metavar="K", help=f"ranks on a node (slots, ${GPU_COUNT_VARIABLE}, 1)")
    parser.add_argument("--sync-dst-dir", metavar="DIR", help="not supported yet")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY:VALUE",
        help="variable for every rank; KEY alone passes on this shell's value, unseen in process lists",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what every rank runs")
    return parser


def parse_options(arguments: Sequence[str], *, environ: Mapping[str, str]) -> Job:
    """The job that the command line asks for, with the node's variables for what is left out."""
    options = _known_options(_parser(), arguments)
    if options.launcher not in LAUNCHERS:
        raise UsageError(f"--launcher must be {' or '.join(LAUNCHERS)}, got {options.launcher!r}")
    if options.sync_dst_dir is not None:
        raise UsageError("--sync-dst-dir is not supported yet: put the files on every node first, as with rsync")
    local = options.launcher == "local"
    return Job(
        hosts=(_this_machine(options, environ),) if local else _hosts(options, environ),
        local=local,
        environment=dict(_variable(item, environ) for item in options.env),
        command=_command(options.command),
    )


def _known_options(parser: _Parser, arguments: Sequence[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = sorted({action.option_strings[-1] for action in parser._actions if action.option_strings})
        raise UsageError(f"unknown option {unknown[0]}, supported: {', '.join(known)}")
    return options


def _hosts(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Host, ...]:
    hosts = read_hosts(Path(options.hostfile or environ.get(WORKERS_PATH_VARIABLE) or WORKERS_FILE))
    # Not $DEEPLEARNING_WORKERS_COUNT: in a shell from before a node came or went it is out of date.
    wanted = len(hosts) if options.num_workers is None else whole_number(options.num_workers, name="-n")
    if wanted > len(hosts):
        raise UsageError(f"-n must be at most {len(hosts)}, the hosts in the hosts file, got {wanted}")
    asked = _ranks_asked(options)
    otherwise = _gpus_or_one(environ)
    return tuple(replace(host, slots=asked or host.slots or otherwise) for host in hosts[:wanted])


def _this_machine(options: argparse.Namespace, environ: Mapping[str, str]) -> Host:
    if options.hostfile is not None:
        raise UsageError(f"-H names machines, of which --launcher local uses none, got {options.hostfile!r}")
    if options.num_workers is not None and options.nproc_per_node is not None:
        raise UsageError("-n and --nproc-per-node are the same with --launcher local: give one of them")
    if options.num_workers is not None:
        return Host(name=LOCAL_HOST, slots=whole_number(options.num_workers, name="-n", most=MOST_SLOTS))
    return Host(name=LOCAL_HOST, slots=_ranks_asked(options) or _gpus_or_one(environ))


def _ranks_asked(options: argparse.Namespace) -> int | None:
    count = options.nproc_per_node
    return None if count is None else whole_number(count, name="--nproc-per-node", most=MOST_SLOTS)


def _gpus_or_one(environ: Mapping[str, str]) -> int:
    gpus = environ.get(GPU_COUNT_VARIABLE) or "0"
    return max(1, whole_number(gpus, name=f"${GPU_COUNT_VARIABLE}", least=0, most=MOST_SLOTS))


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
    if len(command) == 1:
        # One word is a line quoted for a shell, as launch.py takes it.
        return ("/bin/bash", "-c", command[0])
    # launch.py gives its words to a shell, to which NAME=value before the command's name is a variable.
    return ("env", *command) if ASSIGNMENT.match(command[0]) else command
