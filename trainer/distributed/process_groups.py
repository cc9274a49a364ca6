"""Group the ranks by node, so that only a node's sums leave it.

With L ranks on each of N nodes, there are two kinds of groups: the L ranks of a node, which sum a tensor and keep one
part each; and the N ranks with the same local rank, one per node, which sum that part over all nodes (the levels of
Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", section 4.1).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from trainer.cuda_streams import copy_to_host
from trainer.distributed.rendezvous import report_lost_ranks
from trainer.distributed.world import World

log = logging.getLogger(__name__)


class NodePlace(NamedTuple):
    """A rank's number on its node, and how many ranks the node has."""

    local_rank: int
    local_world_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessGroups:
    """Process groups of a rank. The default treats each rank as a node."""

    intra_node: ProcessGroup | None = None
    """Ranks of this rank's node."""
    inter_node: ProcessGroup | None = None
    """Ranks with the same local rank on all nodes; None means all ranks."""

    @property
    def subgroups(self) -> list[ProcessGroup]:
        """Return the groups other than the group of all ranks."""
        return [group for group in (self.intra_node, self.inter_node) if group is not None]


def create_process_groups(world: World, *, device: torch.device, timeout: timedelta) -> ProcessGroups | None:
    """Create this rank's groups with this timeout; None if all ranks are on one node. The ranks must be connected.

    Nodes with unequal numbers of ranks, or ranks that are not numbered node by node, get no groups.
    """
    place = torch.tensor([NodePlace(world.local_rank, world.local_world_size)], device=device)
    all_places = place.new_empty(world.world_size, 2)
    with report_lost_ranks("asking all ranks for their nodes", timeout=timeout):
        torch.distributed.all_gather_into_tensor(all_places, place)
        # All ranks see the same positions, so all decide alike.
        places = [NodePlace(*row) for row in copy_to_host(all_places, timeout_s=timeout.total_seconds()).tolist()]
        size = places[0].local_world_size
        if not is_regular(places):
            if world.rank == 0:
                log.warning(
                    "--gc-type: the nodes do not have the same number of ranks each, so every rank sends its 16-bit "
                    "numbers to all others: between nodes that can be more bytes than float32"
                )
            return ProcessGroups()
        if size == world.world_size:
            if world.rank == 0:
                log.info("--gc-type: gradients do not leave the only node and stay float32")
            return None
        if size == 1:
            return ProcessGroups()
        # Collective: all ranks create all groups in the same order, including those that they are not in.
        by_node = [list(range(first, first + size)) for first in range(0, world.world_size, size)]
        by_local_rank = [list(range(first, world.world_size, size)) for first in range(size)]
        make = torch.distributed.new_subgroups_by_enumeration
        intra_node, inter_node = (
            make(members, timeout=timeout)[0]  # type: ignore[no-untyped-call]  # untyped in torch
            for members in (by_node, by_local_rank)
        )
        return ProcessGroups(intra_node=intra_node, inter_node=inter_node)


def is_regular(places: Sequence[tuple[int, int]]) -> bool:
    """Return True if all nodes have the same number of ranks, numbered node by node."""
    _, size = places[0]
    return len(places) % size == 0 and all(place == (rank % size, size) for rank, place in enumerate(places))
