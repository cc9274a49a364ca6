"""Measure the scaling efficiency of two workers: data-parallel training, compared with independent training.

Each worker has its own core and node (harness/pair.py). Both kinds use both cores at the same time, so that contention
between busy cores affects both. ``scaling_lenet`` (batch 32 per worker, float32, no accumulation) and
``scaling_resnet110`` (batch 16) are the images/s with ``--kv-store dist_sync`` divided by those with
``--kv-store local``. Targets: at least 0.80 and 0.95. Rounds run in turn, and the best of each counts.
Run by ``make bench B=scaling`` or ``python -m benchmarks.train.scaling [--rounds N] [--network NAME]``, as root.
"""

import sys

from benchmarks.harness.pair import Contestant, compare, independent_ranks, run_rounds, trainer_command
from benchmarks.harness.work import WORK


def measure(rounds: int, networks: list[str]) -> list[str]:
    """Measure; return the result lines."""
    figures = []
    for network in networks:
        work = WORK[network]
        together = Contestant(
            name=f"{network} together", command=trainer_command(network, store="dist_sync", workers=2), work=work
        )
        apart = Contestant(
            name=f"{network} apart",
            command=trainer_command(network, store="local", workers=1),
            work=work,
            environment=independent_ranks,
        )
        compare([together, apart], rounds=rounds)
        figures.append(f"scaling_{network} {together.best / apart.best:.3f} ratio")
    return figures


if __name__ == "__main__":
    sys.exit(run_rounds("benchmarks.train.scaling", __doc__, measure))
