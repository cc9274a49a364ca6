"""Plan Horovod on Gloo, without MPI: the variables that ``horovodrun --gloo`` sets, one process per GPU.

See horovod/runner/gloo_run.py (create_slot_env_vars, create_run_envs) of Horovod 0.28.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate

from launcher.frameworks.framework import RESTART_COUNT, RUN_ID, Framework, JobTopology
from launcher.spec import JobSpec, ProcessSpec


def plan(job: JobSpec, topology: JobTopology) -> Sequence[tuple[ProcessSpec, ...]]:
    """Plan as many ranks on each node as it has slots."""
    if topology.rendezvous_endpoint is None:
        raise ValueError("Horovod's ranks need a rendezvous store")
    address, port = topology.rendezvous_endpoint
    slots = [host.slots for host in job.hosts]
    offsets = [0, *accumulate(slots)]

    def process(node: int, local_rank: int) -> ProcessSpec:
        # The cross communicator joins ranks with the same local rank.
        peers = [other for other, count in enumerate(slots) if count > local_rank]
        rank = offsets[node] + local_rank
        environment = {
            "HOROVOD_HOSTNAME": str(job.hosts[node]),
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(offsets[-1]),
            "HOROVOD_LOCAL_RANK": str(local_rank),
            "HOROVOD_LOCAL_SIZE": str(slots[node]),
            "HOROVOD_CROSS_RANK": str(peers.index(node)),
            "HOROVOD_CROSS_SIZE": str(len(peers)),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "PYTHONUNBUFFERED": "1",
            RESTART_COUNT: str(topology.restart_count),
            RUN_ID: topology.job_id,
        }
        return ProcessSpec(
            name=f"rank {rank}", rank=rank, label=str(local_rank), command=job.command, environment=environment
        )

    return [tuple(process(node, local) for local in range(count)) for node, count in enumerate(slots)]


def scopes(job: JobSpec) -> dict[str, int]:
    """Return the three communicators of each rank, and the number of ranks in each."""
    slots = [host.slots for host in job.hosts]
    local = {f"local_{host}": host.slots for host in job.hosts}
    cross = {f"cross_{rank}": sum(count > rank for count in slots) for rank in range(max(slots))}
    return {"global": sum(slots), **local, **cross}


@asynccontextmanager
async def serve_rendezvous(job: JobSpec, peer: str) -> AsyncIterator[tuple[str, int]]:
    """Serve the rendezvous store on this machine's address towards `peer`; yield address and port."""
    # Imported late: asyncio is imported after the command line is parsed (launcher.main).
    from launcher.frameworks.horovod_store import RendezvousStore, serve
    from launcher.hosts.addresses import own_address_towards

    address = own_address_towards(peer)
    async with await serve(RendezvousStore(scopes(job)), address=address) as server:
        yield address, int(server.sockets[0].getsockname()[1])


FRAMEWORK = Framework(
    plan=plan,
    reserved_variables=(
        *(f"HOROVOD_{name}" for name in ("HOSTNAME", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
        *(f"HOROVOD_{name}" for name in ("CROSS_RANK", "CROSS_SIZE", "CONTROLLER", "CPU_OPERATIONS")),
        *("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", RESTART_COUNT, RUN_ID),
    ),
    inherited_variables=("OMP_NUM_THREADS",),
    interface_variables=("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"),
    required_setting="horovod",
    serve_rendezvous=serve_rendezvous,
)
