"""Run the check on every rank: collect the nodes' devices, measure the pairs, then all nodes; rank 0 reports."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from trainer.check.bandwidth import measure
from trainer.check.findings import measure_confirmed
from trainer.check.node_devices import NodeDevices, read_devices
from trainer.check.report import Report
from trainer.check.rounds import Pair, pair_rounds
from trainer.check.watchdog import LIMIT_S, Watchdog
from trainer.distributed.rendezvous import join_ranks, report_lost_ranks
from trainer.distributed.world import World, read_number
from trainer.errors import TrainerError

CONNECT_TIMEOUT: Final = timedelta(seconds=120)
"""Longest wait for the other ranks: a new node loads PyTorch from its image block by block."""
COLLECTIVE_TIMEOUT: Final = timedelta(seconds=2 * LIMIT_S)
"""Timeout of torch's operations; Watchdog fires earlier, with a better message."""
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """One rank's report to the others."""

    node_rank: int
    local_rank: int
    cuda_devices: int
    """Number of GPUs that PyTorch can use."""
    node: NodeDevices


class BandwidthProbe:
    """Measures the bandwidth between the job's nodes on one rank, with groups of the measuring ranks."""

    def __init__(self, rank_facts: Sequence[RankFacts], *, rank: int, watchdog: Watchdog) -> None:
        # If a node lacks a GPU, some of its ranks have none: all nodes use as many as the one with the fewest.
        gpus = min(facts.cuda_devices for facts in rank_facts)
        self.comm_backend = "nccl" if gpus else "gloo"
        self._members = [
            [
                number
                for number, facts in enumerate(rank_facts)
                if facts.node_rank == node and facts.local_rank < max(gpus, 1)
            ]
            for node in sorted({facts.node_rank for facts in rank_facts})
        ]
        self.devices = [rank_facts[members[0]].node for members in self._members]
        self.measuring_ranks = [number for members in self._members for number in members]
        self._rank, self._watchdog = rank, watchdog
        self._device = torch.device("cuda", rank_facts[rank].local_rank) if gpus else torch.device("cpu")
        self._groups: dict[tuple[int, ...], ProcessGroup] = {}

    def measure_pairs(self) -> dict[Pair, float]:
        """Return the GB/s of each pair; every rank gets the same result."""
        bandwidths: dict[Pair, float] = {}
        for number, pairs in enumerate(pair_rounds(len(self.devices)), start=1):
            measured: dict[Pair, float] = {}
            # Every rank must create a group in each round; see _group.
            for pausing in {*range(len(self.devices))} - {node for pair in pairs for node in pair}:
                if self._rank in self._members[pausing]:
                    self._group(self._members[pausing])
            for a, b in pairs:
                ranks = [*self._members[a], *self._members[b]]
                bandwidth = self._bandwidth(ranks, f"round {number}, {self._names(a, b)}")
                measured |= {} if bandwidth is None else {(a, b): bandwidth}
            for rank_bandwidths in self._gather(measured, f"round {number}"):
                bandwidths |= rank_bandwidths
        return bandwidths

    def measure_all(self) -> float | None:
        """Return the GB/s between all nodes; every rank gets the same result."""
        stage = "the all-reduce of all nodes"
        bandwidths = self._gather(self._bandwidth(self.measuring_ranks, stage), stage)
        return next((bandwidth for bandwidth in bandwidths if bandwidth is not None), None)

    def _bandwidth(self, ranks: list[int], stage: str) -> float | None:
        """Return the bus bandwidth of these ranks in GB/s; None on the others, and for a single one."""
        if self._rank not in ranks or len(ranks) == 1:
            return None
        self._watchdog.enter(stage)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        return measure(self._group(ranks), self._device).gb_per_s

    def _group(self, ranks: Sequence[int]) -> ProcessGroup:
        """Return the group of these ranks; all of them, and no others, must call this.

        torch names such a group after its ranks and the number of groups that they have. So every rank creates one in
        each round, including those of a node without a partner, and none twice.
        """
        key = tuple(ranks)
        if key not in self._groups:
            self._groups[key] = torch.distributed.new_group(
                [*ranks], timeout=COLLECTIVE_TIMEOUT, backend=self.comm_backend, use_local_synchronization=True
            )
        return self._groups[key]

    def _gather(self, value: Value, stage: str) -> list[Value]:
        self._watchdog.enter(f"{stage} on the other nodes", waits=True)
        return all_gather_object(value)

    def _names(self, a: int, b: int) -> str:
        return f"{self.devices[a].name} with {self.devices[b].name}"


def all_gather_object(value: Value) -> list[Value]:
    """Return every rank's value, in the order of the ranks."""
    values = [value] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def check(world: World, devices: NodeDevices, *, node_rank: int) -> Report:
    """Measure with all ranks; return the report, the same on each."""
    if world.world_size == 1:
        return Report(devices=[devices], pairs={}, all_nodes_gb_per_s=None, ranks=1, comm_backend="gloo")
    # Connect over gloo first, so that a rank that lacks its GPU can report it.
    join_ranks(torch.device("cpu"), world=world, timeout=CONNECT_TIMEOUT)
    watchdog = Watchdog(devices.name)
    rank_facts = RankFacts(
        node_rank=node_rank, local_rank=world.local_rank, cuda_devices=torch.cuda.device_count(), node=devices
    )
    with report_lost_ranks("measuring", timeout=COLLECTIVE_TIMEOUT):
        probe = BandwidthProbe(all_gather_object(rank_facts), rank=world.rank, watchdog=watchdog)
        pairs = measure_confirmed(probe.measure_pairs, len(probe.devices))
        all_nodes_gb_per_s = probe.measure_all()
        watchdog.enter("the last barrier of the ranks", waits=True)
        torch.distributed.barrier()
    watchdog.stop()
    return Report(
        devices=probe.devices,
        pairs=pairs,
        all_nodes_gb_per_s=all_nodes_gb_per_s,
        ranks=len(probe.measuring_ranks),
        comm_backend=probe.comm_backend,
    )


def main(arguments: Sequence[str], *, environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Check the nodes; rank 0 prints the report. Return 1 on an error, or if a text report names a node."""
    parser = argparse.ArgumentParser("check", description="Check the nodes' devices and the network between them.")
    parser.add_argument("--json", action="store_true", help="print one line of JSON, and exit with 0 whatever it says")
    options = parser.parse_args(arguments)
    try:
        world = World.from_environment(environment)
        node_rank = read_number(environment, "GROUP_RANK", minimum=0)
        report = check(world, read_devices(root), node_rank=node_rank)
    except TrainerError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    return _print(report, as_json=options.json) if world.rank == 0 else 0


def _print(report: Report, *, as_json: bool) -> int:
    print(report.json() if as_json else report.text(), flush=True)
    return 1 if report.findings and not as_json else 0
