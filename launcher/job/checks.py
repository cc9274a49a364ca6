"""Check before an attempt starts that its nodes can run the job: engine, environment, first host, GPUs."""

from collections.abc import Sequence

from bootstrap.contract import WORKER_HOST_PREFIX
from launcher.engines import LAUNCHED_BY_MPI
from launcher.errors import LaunchError, UsageError
from launcher.hosts.hostfile import Host, first_and_others
from launcher.job.engine_check import check_engine, check_venv
from launcher.job.gpu_check import check_gpus
from launcher.spec import Job
from launcher.transport.connection import Connection


async def check_nodes(job: Job, connections: Sequence[Connection], *, is_restart: bool) -> None:
    """Raise LaunchError if a node cannot run its part of the job; skip the GPUs on a restart."""
    await check_engine(job, connections)
    await check_venv(job, connections)
    check_first_host(job, connections)
    if not job.force:
        check_fabric([(one.host, one.efa_devices) for one in connections])
    # On a restart the failed attempt's processes may still hold the GPUs.
    if not (job.force or is_restart):
        check_gpus(job, [connection.gpus for connection in connections])


def check_fabric(found: Sequence[tuple[Host, int | None]]) -> None:
    """Raise LaunchError if some nodes have Elastic Fabric Adapters and some have none: NCCL would hang.

    A runner of an earlier release reports None: its node was launched without.
    """
    without = [host for host, devices in found if not devices]
    if without and any(devices for _, devices in found):
        raise LaunchError(
            f"nothing started, no EFA on {first_and_others(without)} but on the other nodes: replace the nodes that "
            "were launched before efa or instance_type changed (--force starts anyway)"
        )


def check_first_host(job: Job, connections: Sequence[Connection]) -> None:
    """Raise UsageError if mpirun would run on a node without a key for the others."""
    first = connections[0]
    is_elsewhere = first.host.name.startswith(WORKER_HOST_PREFIX) and not first.is_local
    if job.engine == LAUNCHED_BY_MPI and len(connections) > 1 and is_elsewhere:
        raise UsageError(
            f"--launcher mpi needs this machine as the first host, as only the master has the cluster's key, "
            f"got {first.host}"
        )
