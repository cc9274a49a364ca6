"""Which ranks share a node: what they say to each other does not leave it.

With L ranks on each of N nodes there are two kinds of groups. A node's own L ranks add up a vector among themselves and
are left with a part each; the N ranks of the same local rank, one on each node, add up that part over all nodes. So
only a node's sums leave it (Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", section
4.1, has the same levels).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from trainer.engines.meeting import report_lost_ranks
from trainer.engines.streams import read
from trainer.ranks import Ranks

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """The groups that a rank is in. Without: it is as if each rank had a node of its own."""

    inside: ProcessGroup | None = None
    """The ranks of its node."""
    across: ProcessGroup | None = None
    """The ranks of its local rank on all nodes; None: all ranks."""

    @property
    def groups(self) -> list[ProcessGroup]:
        """Those beside the group of all ranks."""
        return [group for group in (self.inside, self.across) if group is not None]


def find_nodes(ranks: Ranks, *, device: torch.device, timeout: timedelta) -> Nodes | None:
    """Make this rank's groups, with this timeout; None where all ranks are on one node. The ranks have met.

    Nodes with unequally many ranks, or ranks that are not numbered node by node, get no groups.
    """
    own = torch.tensor([[ranks.local_rank, ranks.local_world_size]], device=device)
    every = own.new_empty(ranks.world_size, 2)
    with report_lost_ranks("asking all ranks for their nodes", timeout=timeout):
        torch.distributed.all_gather_into_tensor(every, own)
        # All ranks see the same and so decide the same.
        places = read(every, timeout_s=timeout.total_seconds()).tolist()
        size = places[0][1]
        if not is_regular(places):
            if ranks.rank == 0:
                log.warning(
                    "--gc-type: the nodes do not have the same number of ranks each, so every rank sends its 16-bit "
                    "numbers to all others: between nodes that can be more bytes than float32"
                )
            return Nodes()
        if size == ranks.world_size:
            if ranks.rank == 0:
                log.info("--gc-type: gradients do not leave the only node and stay float32")
            return None
        if size == 1:
            return Nodes()
        # All ranks make all groups, in the same order, also those that they are not in.
        by_node = [list(range(first, first + size)) for first in range(0, ranks.world_size, size)]
        by_local_rank = [list(range(first, ranks.world_size, size)) for first in range(size)]
        make = torch.distributed.new_subgroups_by_enumeration
        inside, across = (
            make(members, timeout=timeout)[0]  # type: ignore[no-untyped-call]  # torch gives it no types
            for members in (by_node, by_local_rank)
        )
        return Nodes(inside=inside, across=across)


def is_regular(places: Sequence[Sequence[int]]) -> bool:
    """Whether ranks, given by local rank and number of the node's ranks, are equally many a node, node by node."""
    size = places[0][1]
    return len(places) % size == 0 and all([*place] == [rank % size, size] for rank, place in enumerate(places))
