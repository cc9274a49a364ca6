"""Parse the command line of ``launch`` into one Job."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from bootstrap.contract import GPU_COUNT_VARIABLE, KEEP_VARIABLE, WORKERS_PATH_VARIABLE
from launcher.cli.host_options import first_hosts, host_source_from, this_machine
from launcher.cli.starters import StarterCall, find_starter, refuse_starter
from launcher.cli.sync_options import add_sync_options, sync_request
from launcher.cli.torchrun_options import (
    add_torchrun_options,
    both,
    launcher_asked,
    nodes_asked,
    notes,
    program,
    ranks_shown,
)
from launcher.errors import UsageError
from launcher.frameworks import FRAMEWORKS, LAUNCHED_BY_MPI
from launcher.hosts.hostfile import FORMS
from launcher.shell_words import ASSIGNMENT
from launcher.spec import GRACE_S, Job, Restarts
from launcher.validate import whole_number

LAUNCHERS = ("ssh", "local", "mpi")
ASKED_ENGINES = tuple(name for name in FRAMEWORKS if name != LAUNCHED_BY_MPI)
REJOIN_S = 600
"""Seconds in which a replacement can boot from its image; also torchrun's timeout for nodes that join."""
KEEP_S = 60
"""Long enough to edit and try again; shorter than an idle runner waits (launcher.runner.idle)."""
LONGEST_S = 86400
MOST_RESTARTS = 1000
MOST_SERVERS = 1024
"""More than any cluster can use, so that a typing slip is refused."""
NO_TERMINAL = 80
"""Width of help, in columns, if it does not go to a terminal."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A variable's name, as a shell reads it (POSIX.1-2017, Base Definitions 3.235, Name)."""


class _Help(argparse.HelpFormatter):
    """Format help as wide as the terminal. argparse would ask shutil, which is slower to import than all of this."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_width() - 2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _RejectMpirunOption(argparse.Action):
    """An option whose name begins as one of launch's: argparse would take the rest of it for a value."""

    def __call__(self, parser: object, namespace: object, values: Any, option_string: str | None = None) -> None:
        raise _refusal(str(option_string), known=())


def _parser() -> _Parser:
    parser = _Parser(
        prog="launch",
        allow_abbrev=False,
        formatter_class=_Help,
        description="Run a command on every node of the cluster, once a GPU, as one job.",
        epilog="The command may be one quoted word, which a shell then reads, or several words; what is called "
        "NAME.py is run by python. What follows the command's name belongs to the command.",
    )
    parser.add_argument("-n", "--num-workers", metavar="N", help="nodes (all of the hosts file); ranks with local")
    parser.add_argument(
        "-np", "--num-proc", metavar="P", help="ranks in all, on the first nodes: mpirun's way to say it"
    )
    parser.add_argument("-H", "--hostfile", metavar="FILE", help=f"{FORMS} a line (${WORKERS_PATH_VARIABLE})")
    parser.add_argument("-s", "--num-servers", metavar="S", help="MXNet's parameter servers (as many as workers)")
    parser.add_argument("--launcher", help="ssh: on the hosts; local: all on this machine; mpi: by mpirun (ssh)")
    parser.add_argument("--engine", help=f"whose variables: {', '.join(ASKED_ENGINES)} (torch; mxnet with -s)")
    parser.add_argument(
        *both("--nproc-per-node"),
        metavar="K",
        help=f"ranks on a node; also gpu, cpu, auto: as many as this one has (slots, ${GPU_COUNT_VARIABLE}, 1)",
    )
    add_sync_options(parser)
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY:VALUE",
        help="variable for every rank; KEY alone passes on this shell's value, unseen in process lists",
    )
    parser.add_argument(
        *both("--max-restarts"), metavar="R", default="0", help="times that a failed job starts again (0)"
    )
    parser.add_argument("--min-nodes", metavar="M", help="restart on so many nodes at least (all)")
    parser.add_argument("--rejoin-timeout", metavar="S", help=f"seconds that missing nodes have ({REJOIN_S})")
    parser.add_argument("--grace", metavar="S", help=f"seconds between TERM and KILL ({GRACE_S:g})")
    parser.add_argument("--detach", action="store_true", help="run on without this shell; see launch list, logs, stop")
    parser.add_argument("--force", action="store_true", help="start also on GPUs that are in use")
    add_torchrun_options(parser)
    parser.add_argument("-mca", "-map-by", action=_RejectMpirunOption, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what every rank runs")
    return parser


def _terminal_width() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns) or NO_TERMINAL
    except (ValueError, OSError):
        return NO_TERMINAL


def parse_options(arguments: Sequence[str], *, environ: Mapping[str, str]) -> Job:
    """Parse the command line into a Job; the node's variables fill in what is left out."""
    options = _known_options(_parser(), arguments)
    if options.launcher not in LAUNCHERS:
        raise UsageError(f"--launcher must be one of {', '.join(LAUNCHERS)}, got {options.launcher!r}")
    framework = _engine(options)
    local = options.launcher == "local"
    host_source = None if local else host_source_from(options, environ, framework=framework)
    hosts = (
        (this_machine(options, environ, framework=framework),)
        if host_source is None
        else first_hosts(options, host_source.read(), framework=framework)
    )
    passed_on = {name: environ[name] for name in FRAMEWORKS[framework].passed_on if name in environ}
    asked = dict(_variable(item, environ, framework=framework) for item in options.env)
    if (starter := find_starter(_words(options))) is not None:
        refuse_starter(starter, options=_launch_words(arguments, options), hosts=hosts)
    return Job(
        hosts=hosts,
        local=local,
        framework=framework,
        servers=_servers(options, workers=sum(host.slots for host in hosts))
        if FRAMEWORKS[framework].has_servers
        else 0,
        environment=passed_on | asked,
        command=_command(options),
        host_source=host_source,
        servers_follow=options.num_servers is None and FRAMEWORKS[framework].has_servers,
        restarts=_restarts(options, nodes=len(hosts)),
        grace_s=GRACE_S if options.grace is None else whole_number(options.grace, name="--grace", most=LONGEST_S),
        detach=options.detach,
        force=options.force,
        keep_s=0 if local or options.detach else _keep_seconds(environ),
        sync=sync_request(options),
        shown=ranks_shown(options, framework=framework),
        notes=notes(options),
    )


def _known_options(parser: _Parser, arguments: Sequence[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    starter = None if unknown else find_starter(_words(options))
    if starter is not None and starter.name == "torchrun" and starter.plain:
        # torchrun does what launch does: its options become launch's, and its script the command.
        options, unknown = parser.parse_known_args([*_launch_words(arguments, options), *starter.words])
        if options.command and not unknown:
            options.command = _torchrun_command(starter, options)
    if unknown:
        shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
        raise _refusal(unknown[0], known=sorted(action.option_strings[-1] for action in shown if action.option_strings))
    options.launcher = launcher_asked(options)
    return options


def _refusal(option: str, *, known: Sequence[str]) -> UsageError:
    # Import only now: most command lines never need it.
    from launcher.cli.unsupported_options import alternative

    if without := alternative(option):
        return UsageError(f"{option.partition('=')[0]} is not supported: {without}")
    return UsageError(f"unknown option {option}, {_suggestion(option, known)}supported: {', '.join(known)}")


def _suggestion(option: str, known: Sequence[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(option.partition("=")[0].replace("_", "-"), known, n=1, cutoff=0.9)
    return f"did you mean {nearest[0]}? " if nearest else ""


def _engine(options: argparse.Namespace) -> str:
    asked = options.engine
    if asked is not None and asked not in ASKED_ENGINES:
        raise UsageError(f"--engine must be one of {', '.join(ASKED_ENGINES)}, got {asked!r}")
    framework: str = asked or ("torch" if options.num_servers is None else "mxnet")
    if options.num_servers is not None and not FRAMEWORKS[framework].has_servers:
        raise UsageError(f"-s is for --engine mxnet, which has parameter servers, got --engine {framework}")
    if options.launcher != "mpi":
        return framework
    if asked is not None or options.num_servers is not None:
        raise UsageError("--engine and -s need --launcher ssh or local: mpirun sets variables of its own")
    return LAUNCHED_BY_MPI


def _servers(options: argparse.Namespace, *, workers: int) -> int:
    if options.num_servers is None:
        return workers
    return whole_number(options.num_servers, name="-s", most=MOST_SERVERS)


def _restarts(options: argparse.Namespace, *, nodes: int) -> Restarts:
    most = whole_number(options.max_restarts, name="--max-restarts", least=0, most=MOST_RESTARTS)
    given = {"--min-nodes": options.min_nodes, "--rejoin-timeout": options.rejoin_timeout}
    useless = [name for name, value in given.items() if value is not None]
    if not most and useless:
        raise UsageError(f"{useless[0]} is for a job that starts again: give --max-restarts too")
    asked = nodes_asked(options)
    fewest = min(nodes, asked.least) if asked is not None else nodes
    return Restarts(
        most=most,
        min_nodes=whole_number(
            str(fewest) if options.min_nodes is None else options.min_nodes, name="--min-nodes", most=nodes
        ),
        rejoin_s=whole_number(
            str(REJOIN_S) if options.rejoin_timeout is None else options.rejoin_timeout,
            name="--rejoin-timeout",
            least=0,
            most=LONGEST_S,
        ),
    )


def _keep_seconds(environ: Mapping[str, str]) -> int:
    asked = environ.get(KEEP_VARIABLE) or str(KEEP_S)
    return whole_number(asked, name=f"${KEEP_VARIABLE}", least=0, most=KEEP_S)


def _variable(item: str, environ: Mapping[str, str], *, framework: str) -> tuple[str, str]:
    key, colon, value = item.partition(":")
    if not key or "=" in key:
        raise UsageError(f"--env must be KEY:VALUE or KEY, got {item!r}")
    if not NAME.fullmatch(key):
        raise UsageError(f"--env must name a variable of letters, digits and _, the first no digit, got {key!r}")
    if key in FRAMEWORKS[framework].own_variables:
        raise UsageError(f"--env must not set {key}, which the launcher sets for --engine {framework}")
    if not colon and key not in environ:
        raise UsageError(f"--env {key} passes on a variable that is not set here")
    return key, value if colon else environ[key]


def _launch_words(arguments: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return the part of the command line before the command."""
    own = list(arguments[: len(arguments) - len(options.command)])
    return own[:-1] if own[-1:] == ["--"] else own


def _words(options: argparse.Namespace) -> list[str]:
    return list(options.command[1:] if options.command[:1] == ["--"] else options.command)


def _torchrun_command(starter: StarterCall, options: argparse.Namespace) -> list[str]:
    """Return the command of a line that says torchrun: the Python that torchrun is installed in runs the script."""
    if options.no_python:
        return [*starter.before, *_words(options)]
    python = [starter.python, "-u", *(["-m"] if options.module else [])]
    options.module = False
    return [*starter.before, *python, *_words(options)]


def _command(options: argparse.Namespace) -> tuple[str, ...]:
    words = tuple(_words(options))
    if not words or not words[0]:
        raise UsageError("no command given, as in: launch python train.py")
    # launch.py passes its words to a shell, which takes NAME=value before the command's name for a variable.
    variables = tuple(takewhile(ASSIGNMENT.match, words[:-1]))
    run = program(words[len(variables) :], options)
    if len(run) == 1:
        # One word is a line quoted for a shell, as launch.py takes it.
        run = ("/bin/bash", "-c", *run)
    return ("env", *variables, *run) if variables else run
