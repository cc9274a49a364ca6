"""The command line of ``launch``, turned into one Job."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from bootstrap.contract import (
    GPU_COUNT_VARIABLE,
    KEEP_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
)
from launcher.engines import ENGINES, LAUNCHED_BY_MPI
from launcher.errors import UsageError
from launcher.hosts import FORMS, MOST_SLOTS, Host
from launcher.numbers import whole_number
from launcher.roster import Roster
from launcher.spec import GRACE_S, Job, Restarts
from launcher.sync.options import add_sync_options, sync_request

LAUNCHERS = ("ssh", "local", "mpi")
ASKED_ENGINES = tuple(name for name in ENGINES if name != LAUNCHED_BY_MPI)
LOCAL_HOST = "localhost"
REJOIN_S = 600
"""Time for a replacement to boot from its image; also torchrun's timeout for nodes that join."""
KEEP_S = 60
"""Long enough for who edits and tries again; shorter than an idle runner waits (launcher.runner.idle)."""
LONGEST_S = 86400
MOST_RESTARTS = 1000
MOST_SERVERS = 1024
"""More than any cluster has use for; stops a slip of the keyboard."""
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


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
    parser.add_argument("-s", "--num-servers", metavar="S", help="MXNet's parameter servers (as many as workers)")
    parser.add_argument(
        "--launcher", default="ssh", help="ssh: on the hosts; local: all on this machine; mpi: by mpirun (ssh)"
    )
    parser.add_argument("--engine", help=f"whose variables: {', '.join(ASKED_ENGINES)} (torch; mxnet with -s)")
    parser.add_argument("--nproc-per-node", metavar="K", help=f"ranks on a node (slots, ${GPU_COUNT_VARIABLE}, 1)")
    add_sync_options(parser)
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY:VALUE",
        help="variable for every rank; KEY alone passes on this shell's value, unseen in process lists",
    )
    parser.add_argument("--max-restarts", metavar="R", default="0", help="times that a failed job starts again (0)")
    parser.add_argument("--min-nodes", metavar="M", help="restart on so many nodes at least (all)")
    parser.add_argument("--rejoin-timeout", metavar="S", help=f"seconds that missing nodes have ({REJOIN_S})")
    parser.add_argument("--grace", metavar="S", help=f"seconds between TERM and KILL ({GRACE_S:g})")
    parser.add_argument("--detach", action="store_true", help="run on without this shell; see launch list, logs, stop")
    parser.add_argument("--force", action="store_true", help="start also on GPUs that are in use")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what every rank runs")
    return parser


def parse_options(arguments: Sequence[str], *, environ: Mapping[str, str]) -> Job:
    """The job that the command line asks for, with the node's variables for what is left out."""
    options = _known_options(_parser(), arguments)
    if options.launcher not in LAUNCHERS:
        raise UsageError(f"--launcher must be one of {', '.join(LAUNCHERS)}, got {options.launcher!r}")
    engine = _engine(options)
    local = options.launcher == "local"
    roster = None if local else _roster(options, environ, engine=engine)
    hosts = (
        (_this_machine(options, environ, engine=engine),)
        if roster is None
        else _first_hosts(options, roster.read(), engine=engine)
    )
    passed_on = {name: environ[name] for name in ENGINES[engine].passed_on if name in environ}
    asked = dict(_variable(item, environ, engine=engine) for item in options.env)
    return Job(
        hosts=hosts,
        local=local,
        engine=engine,
        servers=_servers(options, workers=sum(host.slots for host in hosts)) if ENGINES[engine].has_servers else 0,
        environment=passed_on | asked,
        command=_command(options.command),
        roster=roster,
        servers_follow=options.num_servers is None and ENGINES[engine].has_servers,
        restarts=_restarts(options, nodes=len(hosts)),
        grace_s=GRACE_S if options.grace is None else whole_number(options.grace, name="--grace", most=LONGEST_S),
        detach=options.detach,
        force=options.force,
        keep_s=0 if local or options.detach else _keep_seconds(environ),
        sync=sync_request(options),
    )


def _known_options(parser: _Parser, arguments: Sequence[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = sorted(action.option_strings[-1] for action in parser._actions if action.option_strings)
        raise UsageError(f"unknown option {unknown[0]}, {_meant(unknown[0], known)}supported: {', '.join(known)}")
    if options.num_workers == "p":
        raise UsageError("unknown option -np (of mpirun): -n is for nodes, --nproc-per-node for ranks on each")
    return options


def _meant(option: str, known: Sequence[str]) -> str:
    # Most never need it.
    import difflib

    nearest = difflib.get_close_matches(option.partition("=")[0].replace("_", "-"), known, n=1, cutoff=0.9)
    return f"did you mean {nearest[0]}? " if nearest else ""


def _engine(options: argparse.Namespace) -> str:
    asked = options.engine
    if asked is not None and asked not in ASKED_ENGINES:
        raise UsageError(f"--engine must be one of {', '.join(ASKED_ENGINES)}, got {asked!r}")
    engine: str = asked or ("torch" if options.num_servers is None else "mxnet")
    if options.num_servers is not None and not ENGINES[engine].has_servers:
        raise UsageError(f"-s is for --engine mxnet, which has parameter servers, got --engine {engine}")
    if options.launcher != "mpi":
        return engine
    if asked is not None or options.num_servers is not None:
        raise UsageError("--engine and -s need --launcher ssh or local: mpirun sets variables of its own")
    return LAUNCHED_BY_MPI


def _servers(options: argparse.Namespace, *, workers: int) -> int:
    if options.num_servers is None:
        return workers
    return whole_number(options.num_servers, name="-s", most=MOST_SERVERS)


def _roster(options: argparse.Namespace, environ: Mapping[str, str], *, engine: str) -> Roster:
    path = Path(options.hostfile or environ.get(WORKERS_PATH_VARIABLE) or WORKERS_FILE)
    asked = _ranks_asked(options)
    if ENGINES[engine].has_servers:
        return Roster(path=path, slots=_one_worker(asked), otherwise=1)
    return Roster(path=path, slots=asked, otherwise=_gpus_or_one(environ))


def _first_hosts(options: argparse.Namespace, hosts: tuple[Host, ...], *, engine: str) -> tuple[Host, ...]:
    # Not $DEEPLEARNING_WORKERS_COUNT: in a shell from before a node came or went it is out of date.
    wanted = len(hosts) if options.num_workers is None else whole_number(options.num_workers, name="-n")
    if wanted > len(hosts):
        raise UsageError(f"-n must be at most {len(hosts)}, the hosts in the hosts file, got {wanted}")
    if engine == LAUNCHED_BY_MPI and (ports := [str(host) for host in hosts[:wanted] if host.port is not None]):
        raise UsageError(f"--launcher mpi takes ports from ssh's configuration alone, got {ports[0]}")
    return hosts[:wanted]


def _restarts(options: argparse.Namespace, *, nodes: int) -> Restarts:
    most = whole_number(options.max_restarts, name="--max-restarts", least=0, most=MOST_RESTARTS)
    given = {"--min-nodes": options.min_nodes, "--rejoin-timeout": options.rejoin_timeout}
    useless = [name for name, value in given.items() if value is not None]
    if not most and useless:
        raise UsageError(f"{useless[0]} is for a job that starts again: give --max-restarts too")
    return Restarts(
        most=most,
        min_nodes=whole_number(
            str(nodes) if options.min_nodes is None else options.min_nodes, name="--min-nodes", most=nodes
        ),
        rejoin_s=whole_number(
            str(REJOIN_S) if options.rejoin_timeout is None else options.rejoin_timeout,
            name="--rejoin-timeout",
            least=0,
            most=LONGEST_S,
        ),
    )


def _one_worker(asked: int | None) -> int:
    """A worker of MXNet drives all GPUs of its machine."""
    if asked not in (None, 1):
        raise UsageError(f"--nproc-per-node must be 1 with --engine mxnet, got {asked}")
    return 1


def _this_machine(options: argparse.Namespace, environ: Mapping[str, str], *, engine: str) -> Host:
    if options.hostfile is not None:
        raise UsageError(f"-H names machines, of which --launcher local uses none, got {options.hostfile!r}")
    if options.num_workers is not None and options.nproc_per_node is not None:
        raise UsageError("-n and --nproc-per-node are the same with --launcher local: give one of them")
    if options.num_workers is not None:
        return Host(name=LOCAL_HOST, slots=whole_number(options.num_workers, name="-n", most=MOST_SLOTS))
    asked = _ranks_asked(options)
    return Host(
        name=LOCAL_HOST, slots=_one_worker(asked) if ENGINES[engine].has_servers else asked or _gpus_or_one(environ)
    )


def _ranks_asked(options: argparse.Namespace) -> int | None:
    count = options.nproc_per_node
    return None if count is None else whole_number(count, name="--nproc-per-node", most=MOST_SLOTS)


def _gpus_or_one(environ: Mapping[str, str]) -> int:
    gpus = environ.get(GPU_COUNT_VARIABLE) or "0"
    return max(1, whole_number(gpus, name=f"${GPU_COUNT_VARIABLE}", least=0, most=MOST_SLOTS))


def _keep_seconds(environ: Mapping[str, str]) -> int:
    asked = environ.get(KEEP_VARIABLE) or str(KEEP_S)
    return whole_number(asked, name=f"${KEEP_VARIABLE}", least=0, most=KEEP_S)


def _variable(item: str, environ: Mapping[str, str], *, engine: str) -> tuple[str, str]:
    key, colon, value = item.partition(":")
    if not key or "=" in key:
        raise UsageError(f"--env must be KEY:VALUE or KEY, got {item!r}")
    if key in ENGINES[engine].own_variables:
        raise UsageError(f"--env must not set {key}, which the launcher sets for --engine {engine}")
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
