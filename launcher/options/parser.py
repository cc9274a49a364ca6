"""Parse the command line of ``launch`` into one JobSpec."""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from bootstrap.contract import CONNECTION_IDLE_VARIABLE, GPU_COUNT_VARIABLE, MAX_GRACE_S, WORKERS_PATH_VARIABLE
from launcher.errors import UsageError
from launcher.frameworks import FRAMEWORKS, LAUNCHED_BY_MPI, load_framework
from launcher.hosts.hostfile import FORMS
from launcher.hosts.node_config import setup_timeout_s
from launcher.options.host_options import first_hosts, gpus_per_node, host_source_from, local_host
from launcher.options.nested_launchers import find_nested_launcher, refuse_nested_launchers
from launcher.options.program import build_program, command_args, launch_args, torchrun_command
from launcher.options.sync_options import add_sync_options, sync_request, venv_directory
from launcher.options.torchrun_options import (
    add_torchrun_options,
    launcher_option,
    option_notes,
    parse_nnodes,
    shown_ranks,
    spellings,
)
from launcher.options.variable_options import (
    add_variable_options,
    check_storable,
    requested_variables,
    secret_references,
)
from launcher.options.wait_options import add_wait_options, queue_policy
from launcher.spec import DEFAULT_GRACE_S, JobSpec, RestartPolicy
from launcher.validate import job_name, whole_number

LAUNCHERS = ("ssh", "local", "mpi")
FRAMEWORK_CHOICES = tuple(name for name in FRAMEWORKS if name != LAUNCHED_BY_MPI)
DEFAULT_REJOIN_TIMEOUT_S = 600
"""Default wait for missing nodes, in seconds: a replacement needs so long to boot from its image, without setup. It is
also torchrun's timeout for nodes that join.
"""
MAX_CONNECTION_IDLE_S = 60
"""Default and longest time to keep connections, in seconds. It is long enough to edit and rerun a job, and shorter than
an idle runner waits (launcher.runner.between_jobs).
"""
MAX_SECONDS = 86400
MAX_RESTARTS = 1000
MAX_SERVERS = 1024
"""Largest accepted number of parameter servers; no cluster needs more, so a larger number is a typing error."""
DEFAULT_HELP_COLUMNS = 80


class _Help(argparse.HelpFormatter):
    """Formatter for the terminal's width without shutil, which argparse would import and which is slow."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_width() - 2)


class _Parser(argparse.ArgumentParser):
    """Parser that raises UsageError instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _StoreNodeCount(argparse.Action):
    """Store of the number of nodes and of the spelling that was typed, for messages about it."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        namespace.num_workers, namespace.num_workers_option = values, option_string


class _RejectMpirunOption(argparse.Action):
    """Refusal of an mpirun option that begins like one of launch's; argparse would parse the rest as its value."""

    def __call__(self, parser: object, namespace: object, values: Any, option_string: str | None = None) -> None:
        # Imported late: most command lines do not need it.
        from launcher.options.unsupported_options import unknown_option_error

        raise unknown_option_error(str(option_string), known=())


def _parser() -> _Parser:
    parser = _Parser(
        prog="launch",
        allow_abbrev=False,
        formatter_class=_Help,
        description="Run a command on every node of the cluster as one job, one process per GPU.",
        epilog="The command may be one quoted word, which a shell then reads, or several words; python runs a "
        "command named NAME.py. Everything after the command's name belongs to the command.",
    )
    _add_rank_options(parser)
    add_sync_options(parser)
    add_variable_options(parser)
    _add_restart_options(parser)
    _add_job_options(parser)
    add_torchrun_options(parser)
    parser.add_argument("-mca", "-map-by", action=_RejectMpirunOption, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what every rank runs")
    return parser


def _add_rank_options(parser: _Parser) -> None:
    """Add the options for nodes, ranks and framework."""
    parser.add_argument(
        "-n",
        "--num-workers",
        metavar="N",
        action=_StoreNodeCount,
        help="number of nodes, or of ranks with --launcher local (default: all hosts in the hosts file); takes "
        "the first free nodes where jobs cannot share them",
    )
    parser.add_argument("-np", "--num-proc", metavar="P", help="total number of ranks, as with mpirun")
    parser.add_argument(
        "-H", "--hostfile", metavar="FILE", help=f"file of {FORMS} per line (default: ${WORKERS_PATH_VARIABLE})"
    )
    parser.add_argument(
        "-s", "--num-servers", metavar="S", help="number of MXNet's parameter servers (default: as many as workers)"
    )
    parser.add_argument(
        "--launcher", help="ssh: on the hosts; local: all on this machine; mpi: by mpirun (default: ssh)"
    )
    parser.add_argument(
        "--framework",
        help=f"framework whose variables the ranks get: {', '.join(FRAMEWORK_CHOICES)} (default: torch; mxnet with -s)",
    )
    parser.add_argument("--engine", dest="framework", help=argparse.SUPPRESS)  # the option's first name
    parser.add_argument(
        *spellings("--nproc-per-node"),
        metavar="K",
        help="ranks per node; gpu, cpu or auto: as many as this machine has "
        f"(default: slots, else ${GPU_COUNT_VARIABLE}, else 1)",
    )


def _add_restart_options(parser: _Parser) -> None:
    """Add the options for restarts, and ``--grace``."""
    parser.add_argument(
        *spellings("--max-restarts"), metavar="R", default="0", help="number of restarts after failures (default: 0)"
    )
    parser.add_argument("--min-nodes", metavar="M", help="minimum nodes for a restart (default: all)")
    parser.add_argument(
        "--rejoin-timeout",
        metavar="S",
        help="seconds to wait for missing nodes before a restart "
        f"(default: {DEFAULT_REJOIN_TIMEOUT_S}, plus a new node's setup)",
    )
    grace_help = f"seconds between TERM and KILL, at most {MAX_GRACE_S} (default: {DEFAULT_GRACE_S:g})"
    parser.add_argument("--grace", metavar="S", help=grace_help)


def _add_job_options(parser: _Parser) -> None:
    """Add the options for the job's name, its lifetime and its place in the queue."""
    parser.add_argument("--name", metavar="NAME", help="name of the job, for launch list, logs and stop")
    parser.add_argument(
        "--detach", action="store_true", help="keep running after this shell ends; see launch list, logs, stop"
    )
    parser.add_argument(
        "--durable",
        action="store_true",
        help="detach, and continue after the loss of all nodes, until the job ends or is stopped",
    )
    add_wait_options(parser)
    parser.add_argument(
        "--force", action="store_true", help="start even on GPUs in use, or if nodes differ in EFA or setup"
    )


def _terminal_width() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns) or DEFAULT_HELP_COLUMNS
    except (ValueError, OSError):
        return DEFAULT_HELP_COLUMNS


def parse_options(arguments: Sequence[str], *, environ: Mapping[str, str]) -> JobSpec:
    """Parse the command line into a JobSpec; the node's variables supply defaults."""
    options = _parse_known(_parser(), arguments)
    if options.launcher not in LAUNCHERS:
        raise UsageError(f"--launcher must be one of {', '.join(LAUNCHERS)}, got {options.launcher!r}")
    if options.durable:
        check_storable(hostfile=options.hostfile, variables=options.env, command=command_args(options))
    framework_name = _framework_name(options)
    framework = load_framework(framework_name)
    is_local = options.launcher == "local"
    host_source = None if is_local else host_source_from(options, environ, framework=framework_name)
    if host_source is not None:
        hosts = first_hosts(options, host_source.read(), framework=framework_name)
    else:
        hosts = (local_host(options, environ, framework=framework_name),)
    policy = queue_policy(options, environ, hosts)
    # A job that waits may ask for more nodes than are up now.
    max_nodes = max(len(hosts), policy.nodes.min) if policy and policy.nodes else len(hosts)
    # Raises UsageError for commands such as mpirun that start ranks of their own.
    refuse_nested_launchers(command_args(options), options=launch_args(arguments, options), hosts=hosts)
    inherited = {name: environ[name] for name in framework.inherited_variables if name in environ}
    # Do not hold a connection open while its job waits in the queue.
    keeps_connections = not (is_local or options.detach or options.durable or options.wait)
    return JobSpec(
        hosts=hosts,
        is_local=is_local,
        framework=framework_name,
        servers=_servers(options, workers=sum(host.slots for host in hosts)) if framework.has_servers else 0,
        environment=inherited | requested_variables(options, environ, framework=framework_name),
        secrets=secret_references(options, framework=framework_name),
        command=build_program(options),
        host_source=host_source,
        servers_match_workers=options.num_servers is None and framework.has_servers,
        restart_policy=_restart_policy(options, nodes=max_nodes),
        grace_s=_grace_seconds(options),
        name=None if options.name is None else job_name(options.name),
        detach=options.detach or options.durable,
        durable=options.durable,
        force=options.force,
        has_gpus=gpus_per_node(environ) > 0,
        queue_policy=policy,
        connection_idle_s=_connection_idle_seconds(environ) if keeps_connections else 0,
        sync=sync_request(options),
        venv=venv_directory(options),
        shown_local_ranks=shown_ranks(options, framework=framework_name),
        notes=option_notes(options),
    )


def _parse_known(parser: _Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options; UsageError names an unknown one. Options of a torchrun command count as launch's."""
    options, unknown = parser.parse_known_args(arguments)
    nested = None if unknown else find_nested_launcher(command_args(options))
    if nested is not None and nested.name == "torchrun" and nested.is_plain:
        options, unknown = parser.parse_known_args([*launch_args(arguments, options), *nested.args])
        if options.command and not unknown:
            options.command = torchrun_command(nested, options)
    if unknown:
        # Imported late: most command lines do not need it.
        from launcher.options.unsupported_options import unknown_option_error

        shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
        known = sorted(action.option_strings[-1] for action in shown if action.option_strings)
        raise unknown_option_error(unknown[0], known=known)
    options.launcher = launcher_option(options)
    return options


def _framework_name(options: argparse.Namespace) -> str:
    if options.framework is not None and options.framework not in FRAMEWORK_CHOICES:
        raise UsageError(f"--framework must be one of {', '.join(FRAMEWORK_CHOICES)}, got {options.framework!r}")
    framework: str = options.framework or ("torch" if options.num_servers is None else "mxnet")
    if options.num_servers is not None and not load_framework(framework).has_servers:
        raise UsageError(f"-s requires --framework mxnet, which has parameter servers, got --framework {framework}")
    if options.launcher != "mpi":
        return framework
    if options.framework is not None or options.num_servers is not None:
        raise UsageError("--framework and -s need --launcher ssh or local: mpirun sets variables of its own")
    return LAUNCHED_BY_MPI


def _servers(options: argparse.Namespace, *, workers: int) -> int:
    if options.num_servers is None:
        return workers
    return whole_number(options.num_servers, name="-s", maximum=MAX_SERVERS)


def _restart_policy(options: argparse.Namespace, *, nodes: int) -> RestartPolicy:
    max_restarts = whole_number(options.max_restarts, name="--max-restarts", minimum=0, maximum=MAX_RESTARTS)
    dependent = {"--min-nodes": options.min_nodes, "--rejoin-timeout": options.rejoin_timeout}
    useless = [name for name, value in dependent.items() if value is not None]
    if not max_restarts and useless:
        raise UsageError(f"{useless[0]} requires --max-restarts")
    nnodes = parse_nnodes(options)
    min_nodes = min(nodes, nnodes.min) if nnodes is not None else nodes
    return RestartPolicy(
        max_restarts=max_restarts,
        min_nodes=whole_number(
            str(min_nodes) if options.min_nodes is None else options.min_nodes, name="--min-nodes", maximum=nodes
        ),
        rejoin_timeout_s=whole_number(
            str(DEFAULT_REJOIN_TIMEOUT_S) if options.rejoin_timeout is None else options.rejoin_timeout,
            name="--rejoin-timeout",
            minimum=0,
            maximum=MAX_SECONDS,
        ),
        setup_timeout_s=setup_timeout_s() if options.rejoin_timeout is None else 0,
    )


def _grace_seconds(options: argparse.Namespace) -> float:
    return (
        DEFAULT_GRACE_S if options.grace is None else whole_number(options.grace, name="--grace", maximum=MAX_GRACE_S)
    )


def _connection_idle_seconds(environ: Mapping[str, str]) -> int:
    seconds = environ.get(CONNECTION_IDLE_VARIABLE) or str(MAX_CONNECTION_IDLE_S)
    return whole_number(seconds, name=f"${CONNECTION_IDLE_VARIABLE}", minimum=0, maximum=MAX_CONNECTION_IDLE_S)
