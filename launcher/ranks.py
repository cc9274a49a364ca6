"""Which rank runs where: the variables that torchrun sets, for every rank of a job.

See "Environment Variables" of torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Sequence
from itertools import accumulate

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


def rank_plan(slots: Sequence[int], *, master_addr: str, master_port: int) -> tuple[tuple[dict[str, str], ...], ...]:
    """For each node, in order, the variables of each of its ranks; `slots` is their number on each node."""
    offsets = [0, *accumulate(slots)]

    def variables(node_rank: int, local_rank: int) -> dict[str, str]:
        return {
            "RANK": str(offsets[node_rank] + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(offsets[-1]),
            "LOCAL_WORLD_SIZE": str(slots[node_rank]),
            "GROUP_RANK": str(node_rank),
            "GROUP_WORLD_SIZE": str(len(slots)),
            "NODE_RANK": str(node_rank),
            "MASTER_ADDR": master_addr,
            "MASTER_PORT": str(master_port),
        }

    return tuple(tuple(variables(node, local) for local in range(count)) for node, count in enumerate(slots))
