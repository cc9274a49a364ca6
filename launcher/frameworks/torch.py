"""Plan PyTorch's ranks: the variables that torchrun sets, one process per GPU.

See "Environment Variables" of torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Sequence
from itertools import accumulate

from launcher.frameworks.framework import RESTART_COUNT, RUN_ID, Framework, JobTopology
from launcher.spec import JobSpec, ProcessSpec


def rank_variables(
    slots: Sequence[int],
    *,
    master_addr: str,
    master_port: int,
    run_id: str,
    restart_count: int = 0,
    max_restarts: int = 0,
) -> tuple[tuple[dict[str, str], ...], ...]:
    """Return the variables of each rank, node by node; `slots` lists the number of ranks per node."""
    offsets = [0, *accumulate(slots)]

    def variables(node_rank: int, local_rank: int) -> dict[str, str]:
        rank, world_size = str(offsets[node_rank] + local_rank), str(offsets[-1])
        return {
            "RANK": rank,
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": world_size,
            "LOCAL_WORLD_SIZE": str(slots[node_rank]),
            "GROUP_RANK": str(node_rank),
            "GROUP_WORLD_SIZE": str(len(slots)),
            "NODE_RANK": str(node_rank),
            "ROLE_NAME": "default",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world_size,
            "MASTER_ADDR": master_addr,
            "MASTER_PORT": str(master_port),
            RUN_ID: run_id,
            RESTART_COUNT: str(restart_count),
            "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
        }

    return tuple(tuple(variables(node, local) for local in range(count)) for node, count in enumerate(slots))


def plan(job: JobSpec, topology: JobTopology) -> Sequence[tuple[ProcessSpec, ...]]:
    """Plan as many ranks on each node as it has slots."""
    nodes = rank_variables(
        [host.slots for host in job.hosts],
        master_addr=topology.addresses[0],
        master_port=topology.port,
        run_id=topology.job_id,
        restart_count=topology.restart_count,
        max_restarts=topology.max_restarts,
    )
    return [
        tuple(
            ProcessSpec(
                name=f"rank {variables['RANK']}",
                rank=int(variables["RANK"]),
                label=variables["LOCAL_RANK"],
                command=job.command,
                environment=variables,
            )
            for variables in ranks
        )
        for ranks in nodes
    ]


FRAMEWORK = Framework(
    plan=plan,
    reserved_variables=tuple(rank_variables([1], master_addr="", master_port=0, run_id="")[0][0]),
    inherited_variables=("OMP_NUM_THREADS",),
    interface_variables=("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"),
    # As torchrun does: by default each process would use all cores.
    shared_defaults={"OMP_NUM_THREADS": "1"},
)
