"""Which rank runs where: the variables that torchrun sets, for every rank of a job.

See "Environment Variables" of torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

RANK_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def rank_plan(
    nnodes: int, nproc_per_node: int, *, master_addr: str, master_port: int
) -> tuple[tuple[dict[str, str], ...], ...]:
    """For each node, in order, the variables of each of its ranks."""

    def variables(node_rank: int, local_rank: int) -> dict[str, str]:
        return {
            "RANK": str(node_rank * nproc_per_node + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(nnodes * nproc_per_node),
            "LOCAL_WORLD_SIZE": str(nproc_per_node),
            "GROUP_RANK": str(node_rank),
            "GROUP_WORLD_SIZE": str(nnodes),
            "NODE_RANK": str(node_rank),
            "MASTER_ADDR": master_addr,
            "MASTER_PORT": str(master_port),
        }

    return tuple(tuple(variables(node, local) for local in range(nproc_per_node)) for node in range(nnodes))
