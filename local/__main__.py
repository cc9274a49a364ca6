"""Run, enter, show and end the local AWS.

python -m local image                        build the node image and print where it is
python -m local run [--mxnet] -- COMMAND     run a command inside a fresh local AWS and return its exit code
python -m local shell [--keep]               open a shell inside a fresh local AWS, which ends with the shell; with
                                             --keep leave an empty local AWS up and open no shell
python -m local demo NODES [--keep]          deploy NODES nodes inside a fresh local AWS, train on all of them, and
                                             destroy them, or with --keep leave the local AWS and its cluster up
python -m local enter [RUN] [-- COMMAND]     open a shell, or run a command, inside a running local AWS
python -m local end [RUN]                    end a running local AWS
python -m local status [RUN]                 list the instances of every running local AWS, or of one

Inside a local AWS:
local-aws status                             list its instances
local-aws fault FAULT ...                    break something in it
local-aws capacity TYPE ZONE N               limit the instances of a type in a zone
local-aws quota QUOTA N                      set a vCPU quota of the account
local-aws capacity-block                     buy a Capacity Block in it
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

from local.commands import capacity_block, fault, limits
from local.commands.status import print_status
from local.demo import parse_nodes
from local.errors import LocalError, UsageError
from local.faults import Faults
from local.node.cgroups import run_cgroup
from local.node.image import image_layers
from local.node.inotify_limit import inotify_shortage
from local.run import interactive
from local.run.local_aws import execute_inside, find_local_aws, list_local_aws, stop_local_aws
from local.run.sandbox import run_directory, run_in_sandbox
from local.run_dir import RUN_DIR_VARIABLE, current_run_dir

OUTSIDE_ONLY = ("image", "run", "shell", "demo", "enter", "end")
INSIDE_ONLY = ("fault", "capacity-block", *limits.SUBCOMMANDS)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help says more")


def _parser_inside() -> _Parser:
    """Build the parser of ``local-aws``, the command inside a local AWS."""
    parser = _Parser(prog="local-aws", allow_abbrev=False)
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    subcommands.add_parser("status", help="list the instances of this local AWS")
    fault.add_arguments(subcommands.add_parser("fault", help="break something in it"))
    limits.add_arguments(subcommands.add_parser)
    capacity_block.add_arguments(subcommands.add_parser("capacity-block", help="buy a Capacity Block in it"))
    return parser


def _parser_outside() -> _Parser:
    parser = _Parser(prog="python -m local", allow_abbrev=False)
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    subcommands.add_parser("image", help="build the node image")
    run = subcommands.add_parser(
        "run", help="run a command inside a fresh local AWS", usage="%(prog)s [-h] [--mxnet] -- COMMAND ..."
    )
    run.add_argument("--mxnet", action="store_true", help="build nodes that can install MXNet, Horovod and Open MPI")
    shell = subcommands.add_parser("shell", help="open a shell inside a fresh local AWS")
    shell.add_argument("--keep", action="store_true", help="leave it up, empty, and open no shell")
    demo = subcommands.add_parser(
        "demo", help="deploy NODES nodes inside a fresh local AWS, train on all of them, destroy"
    )
    demo.add_argument("nodes", metavar="NODES", help="number of nodes, the master included")
    demo.add_argument("--keep", action="store_true", help="leave the cluster up")
    helps = {
        "enter": "open a shell or run a command inside a running local AWS",
        "end": "end a running local AWS",
        "status": "list the instances of every running local AWS, or of one",
    }
    usages = {"enter": "%(prog)s [-h] [RUN] [-- COMMAND ...]"}  # argparse does not know what comes after --
    for subcommand, text in helps.items():
        subcommands.add_parser(subcommand, help=text, usage=usages.get(subcommand)).add_argument(
            "run", nargs="?", metavar="RUN", help="its name or the start of it"
        )
    return parser


def _parse(arguments: list[str], *, inside: str | None) -> argparse.Namespace:
    """Parse the command line for inside or outside a local AWS. Raises UsageError."""
    subcommand = next(iter(arguments), None)
    if inside and subcommand in OUTSIDE_ONLY:
        raise UsageError(f"{subcommand} works outside of a local AWS only, this is inside {inside}")
    if not inside and subcommand in INSIDE_ONLY:
        raise UsageError(f"{subcommand} works inside a local AWS only: make enter, then local-aws {subcommand}")
    parser = _parser_inside() if inside else _parser_outside()
    local_arguments, command = _split(arguments)
    options = parser.parse_args(local_arguments)
    if options.subcommand == "run" and not command:
        parser.error("run needs -- COMMAND")
    if command and options.subcommand not in ("run", "enter"):
        parser.error(f"{options.subcommand} takes no command")
    options.command = command
    return options


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the command line into our own arguments and the command after ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def _run(command: list[str], *, with_mxnet: bool = False) -> int:
    layers = ":".join(map(str, image_layers(with_mxnet=with_mxnet)))
    with run_directory() as run_dir:
        # The sandbox has cgroup v2 mounted at the usual place.
        cgroup = f"/sys/fs/cgroup/{run_cgroup(run_dir).name}"
        startup = [sys.executable, "-m", "local.run.startup", str(run_dir), cgroup, layers, "--"]
        return run_in_sandbox([*startup, *command], run_dir=run_dir, environment=os.environ)


def _demo(nodes: int, *, keep: bool) -> int:
    if shortage := inotify_shortage(nodes):
        raise LocalError(shortage)
    image_layers()
    demo = [sys.executable, "-m", "local.demo", str(nodes)]
    return interactive.keep([*demo, "--keep"]) if keep else _run(demo)


def _status(name: str | None) -> int:
    running = [find_local_aws(name)] if name else list_local_aws()
    if not running:
        print("no local AWS is up")
    for local_aws in running:
        print(f"local AWS {local_aws.name}", flush=True)
        execute_inside(local_aws, [sys.executable, "-m", "local", "status"])
    return 0


def _end(name: str | None) -> int:
    """End a local AWS; succeed if none exists and none was named."""
    if name is None and not list_local_aws():
        print("no local AWS is up")
        return 0
    local_aws = find_local_aws(name)
    stop_local_aws(local_aws)
    print(f"local AWS {local_aws.name} has ended")
    return 0


def _image() -> int:
    print("\n".join(map(str, image_layers())))
    return 0


def _act(options: argparse.Namespace) -> int:
    match options.subcommand:
        case "image":
            return _image()
        case "run":
            return _run(options.command, with_mxnet=options.mxnet)
        case "shell":
            image_layers()
            return interactive.keep(["true"]) if options.keep else interactive.shell()
        case "demo":
            return _demo(parse_nodes(options.nodes), keep=options.keep)
        case "enter":
            return interactive.enter_running(find_local_aws(options.run), options.command)
        case "end":
            return _end(options.run)
    return _status(options.run)


def _act_inside(options: argparse.Namespace) -> int:
    if options.subcommand == "status":
        return print_status()
    if options.subcommand == "capacity-block":
        return capacity_block.run_command(options)
    if options.subcommand in limits.SUBCOMMANDS:
        return limits.run_command(current_run_dir(), options)
    return fault.run_command(Faults.current(), options)


def _stop(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _stop)
    try:
        options = _parse(sys.argv[1:], inside=os.environ.get(RUN_DIR_VARIABLE))
        if RUN_DIR_VARIABLE in os.environ:
            return _act_inside(options)
        if os.geteuid() != 0:
            raise LocalError("the local AWS makes network namespaces and containers: run as root")
        return _act(options)
    except LocalError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError) else 1
    except (TimeoutError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
