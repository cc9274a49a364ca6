"""Choose the job's machines, and the ranks on each, from the command line."""

import argparse
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from bootstrap.contract import GPU_COUNT_VARIABLE, WORKERS_FILE, WORKERS_PATH_VARIABLE
from launcher.cli.torchrun_options import COUNTED, Nodes, nodes_asked, ranks_counted
from launcher.errors import UsageError
from launcher.frameworks import FRAMEWORKS, LAUNCHED_BY_MPI
from launcher.hosts.hostfile import LOCAL_HOST, MOST_SLOTS, Host, HostSource
from launcher.validate import whole_number


def host_source_from(options: argparse.Namespace, environ: Mapping[str, str], *, framework: str) -> HostSource:
    """Return where the job's hosts come from."""
    path = Path(options.hostfile or environ.get(WORKERS_PATH_VARIABLE) or WORKERS_FILE)
    if options.hostfile is None and not path.exists():
        raise UsageError(
            f"this machine is no node of a cluster, it has no {path}: launch runs on the master (dlcluster ssh); "
            "-H names a file of other hosts, --launcher local takes this machine alone"
        )
    asked = _ranks_asked(options, environ)
    if FRAMEWORKS[framework].has_servers:
        return HostSource(path=path, slots=_one_worker(asked), otherwise=1)
    return HostSource(path=path, slots=asked, otherwise=max(1, _gpus(environ)))


def first_hosts(options: argparse.Namespace, hosts: tuple[Host, ...], *, framework: str) -> tuple[Host, ...]:
    """Return the hosts on which the job begins."""
    taken = _filled(options, hosts) if options.num_proc is not None else hosts[: _nodes_to_take(options, len(hosts))]
    if framework == LAUNCHED_BY_MPI and (ports := [str(host) for host in taken if host.port is not None]):
        raise UsageError(f"--launcher mpi takes ports from ssh's configuration alone, got {ports[0]}")
    return taken


def _nodes_to_take(options: argparse.Namespace, there: int) -> int:
    # $DEEPLEARNING_WORKERS_COUNT is out of date in a shell that is older than the last change of nodes.
    name, nodes = "--nnodes", nodes_asked(options)
    if nodes is None:
        wanted = there if options.num_workers is None else whole_number(options.num_workers, name="-n")
        name, nodes = "-n", Nodes(least=wanted, most=wanted)
    if nodes.least > there:
        raise UsageError(f"{name} must be at most {there}, the hosts in the hosts file, got {nodes.least}")
    return min(nodes.most, there)


def _filled(options: argparse.Namespace, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return the first hosts that together have that many slots. Part of a host would differ after a restart."""
    if options.num_workers is not None or options.nnodes is not None:
        raise UsageError("-np counts ranks, -n and --nnodes count nodes: give one of them")
    wanted = whole_number(options.num_proc, name="-np")
    together = list(accumulate(host.slots for host in hosts))
    if wanted not in together:
        some = ", ".join(map(str, together[:3])) + (f" and so on to {together[-1]}" if len(together) > 3 else "")
        raise UsageError(f"-np must be {some}, as many as whole nodes have, got {wanted}")
    return hosts[: together.index(wanted) + 1]


def this_machine(options: argparse.Namespace, environ: Mapping[str, str], *, framework: str) -> Host:
    """Return the one host of a local job."""
    if options.hostfile is not None:
        raise UsageError(f"-H names machines, of which --launcher local uses none, got {options.hostfile!r}")
    if nodes_asked(options) not in (None, Nodes(least=1, most=1)):
        raise UsageError(f"--nnodes must be 1 with --launcher local, got {options.nnodes}")
    given = {"-n": options.num_workers, "-np": options.num_proc, "--nproc-per-node": options.nproc_per_node}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} are the same with --launcher local: give one of them")
    if names and names[0] != "--nproc-per-node":
        return Host(name=LOCAL_HOST, slots=whole_number(given[names[0]], name=names[0], most=MOST_SLOTS))
    asked = _ranks_asked(options, environ)
    slots = _one_worker(asked) if FRAMEWORKS[framework].has_servers else asked or max(1, _gpus(environ))
    return Host(name=LOCAL_HOST, slots=slots)


def _ranks_asked(options: argparse.Namespace, environ: Mapping[str, str]) -> int | None:
    asked = options.nproc_per_node
    if asked is None:
        return None
    if asked in COUNTED:
        return ranks_counted(asked, gpus=_gpus(environ))
    return whole_number(asked, name="--nproc-per-node", most=MOST_SLOTS)


def _one_worker(asked: int | None) -> int:
    """Return 1: one worker of MXNet drives all GPUs of its machine."""
    if asked not in (None, 1):
        raise UsageError(f"--nproc-per-node must be 1 with --engine mxnet, got {asked}")
    return 1


def _gpus(environ: Mapping[str, str]) -> int:
    gpus = environ.get(GPU_COUNT_VARIABLE) or "0"
    return whole_number(gpus, name=f"${GPU_COUNT_VARIABLE}", least=0, most=MOST_SLOTS)
