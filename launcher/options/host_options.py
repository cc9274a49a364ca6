"""Choose the job's machines and the ranks on each from the command line."""

import argparse
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from bootstrap.contract import GPU_COUNT_VARIABLE, WORKERS_FILE, WORKERS_PATH_VARIABLE
from launcher.errors import UsageError
from launcher.frameworks import LAUNCHED_BY_MPI, load_framework
from launcher.hosts.hostfile import LOCAL_HOST, MAX_SLOTS, Host, HostSource
from launcher.hosts.node_config import declared_nodes
from launcher.options.torchrun_options import AUTO_COUNTS, auto_ranks, parse_nnodes
from launcher.options.wait_options import may_wait
from launcher.spec import NodeRange
from launcher.validate import whole_number


def host_source_from(options: argparse.Namespace, environ: Mapping[str, str], *, framework: str) -> HostSource:
    """Return the source of the job's hosts."""
    path = Path(options.hostfile or environ.get(WORKERS_PATH_VARIABLE) or WORKERS_FILE)
    if options.hostfile is None and not path.exists():
        raise UsageError(
            f"this machine is not a cluster node: {path} does not exist; run launch on the master (dlcluster ssh); "
            "-H names a file of other hosts, --launcher local runs on this machine alone"
        )
    ranks = _ranks_per_node(options, environ)
    of_cluster = options.hostfile is None
    if load_framework(framework).has_servers:
        return HostSource(path=path, slots=_one_worker(ranks), default_slots=1, of_cluster=of_cluster)
    return HostSource(path=path, slots=ranks, default_slots=max(1, gpus_per_node(environ)), of_cluster=of_cluster)


def first_hosts(options: argparse.Namespace, hosts: tuple[Host, ...], *, framework: str) -> tuple[Host, ...]:
    """Return the hosts for the first run."""
    chosen = _fill_hosts(options, hosts) if options.num_proc is not None else hosts[: _node_count(options, len(hosts))]
    if framework == LAUNCHED_BY_MPI and (ports := [str(host) for host in chosen if host.port is not None]):
        raise UsageError(f"--launcher mpi takes ports only from ssh's configuration, got {ports[0]}")
    return chosen


def _node_count(options: argparse.Namespace, available: int) -> int:
    # A shell opened before the last change of nodes has an outdated $DEEPLEARNING_WORKERS_COUNT.
    name, nodes = "--nnodes", parse_nnodes(options)
    if nodes is None and options.num_workers is None:
        return available
    if nodes is None:
        name = options.num_workers_option
        requested = whole_number(options.num_workers, name=name)
        nodes = NodeRange(min=requested, max=requested)
    if nodes.min > available:
        declared = declared_nodes() if may_wait(options) and options.hostfile is None else None
        if declared is None:
            raise UsageError(f"{name} must be at most {available}, the nodes currently in the cluster, got {nodes.min}")
        if nodes.min > declared:
            raise UsageError(f"{name} must be at most {declared}, the nodes that the cluster declares, got {nodes.min}")
    return min(nodes.max, available)


def _fill_hosts(options: argparse.Namespace, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return the first hosts whose slots together match ``-np`` exactly, using every slot of each host.

    If the job used only part of a host, a restart might use another part.
    """
    if options.num_workers is not None or options.nnodes is not None:
        raise UsageError("-np counts ranks and cannot be combined with -n or --nnodes, which count nodes")
    requested = whole_number(options.num_proc, name="-np")
    total_slots = list(accumulate(host.slots for host in hosts))
    if requested not in total_slots:
        some = ", ".join(map(str, total_slots[:3])) + (
            f" and so on to {total_slots[-1]}" if len(total_slots) > 3 else ""
        )
        raise UsageError(f"-np must fill whole nodes: one of {some}; got {requested}")
    return hosts[: total_slots.index(requested) + 1]


def local_host(options: argparse.Namespace, environ: Mapping[str, str], *, framework: str) -> Host:
    """Return the single host of a job with ``--launcher local``."""
    if options.hostfile is not None:
        raise UsageError(
            f"-H cannot be combined with --launcher local, which uses no other machine, got {options.hostfile!r}"
        )
    if parse_nnodes(options) not in (None, NodeRange(min=1, max=1)):
        raise UsageError(f"--nnodes must be 1 with --launcher local, got {options.nnodes}")
    counts = {"-n": options.num_workers, "-np": options.num_proc, "--nproc-per-node": options.nproc_per_node}
    names = [name for name, value in counts.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} are the same with --launcher local: give one of them")
    if names and names[0] != "--nproc-per-node":
        return Host(name=LOCAL_HOST, slots=whole_number(counts[names[0]], name=names[0], maximum=MAX_SLOTS))
    ranks = _ranks_per_node(options, environ)
    slots = _one_worker(ranks) if load_framework(framework).has_servers else ranks or max(1, gpus_per_node(environ))
    return Host(name=LOCAL_HOST, slots=slots)


def _ranks_per_node(options: argparse.Namespace, environ: Mapping[str, str]) -> int | None:
    count = options.nproc_per_node
    if count is None:
        return None
    if count in AUTO_COUNTS:
        return auto_ranks(count, gpus=gpus_per_node(environ))
    return whole_number(count, name="--nproc-per-node", maximum=MAX_SLOTS)


def _one_worker(ranks: int | None) -> int:
    """Return 1: a single MXNet worker drives all GPUs of its machine."""
    if ranks not in (None, 1):
        raise UsageError(f"--nproc-per-node must be 1 with --framework mxnet, got {ranks}")
    return 1


def gpus_per_node(environ: Mapping[str, str]) -> int:
    """Return the number of GPUs of each node of the cluster; 0 if that is unknown."""
    gpus = environ.get(GPU_COUNT_VARIABLE) or "0"
    return whole_number(gpus, name=f"${GPU_COUNT_VARIABLE}", minimum=0, maximum=MAX_SLOTS)
