"""Measure what a second worker brings: two that train one network together, against two that train independently.

Each worker has a core and a node of its own (harness/pair.py). Both kinds use both cores at the same time, so that
what two busy cores take from each other affects both. ``scaling_lenet`` (batch 32 per worker, float32, no accumulation)
and ``scaling_resnet110`` (batch 16) are images/s with ``--kv-store dist_sync`` over those with ``--kv-store local``: at
least 0.80 and 0.95. Rounds run in turns, and the best of each counts.
Run by ``make bench B=scaling`` or ``python -m benchmarks.train.scaling [--rounds N] [--network NAME]``, as root.
"""

import sys

from benchmarks.harness.pair import Contestant, compare, independent_ranks, run_rounds, trainer_command
from benchmarks.harness.work import WORK


def measure(rounds: int, networks: list[str]) -> list[str]:
    """Measure, and return the figures."""
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
        figures.append(f"scaling_{network} {together.best / apart.best:.2f} ratio")
    return figures


if __name__ == "__main__":
    sys.exit(run_rounds("benchmarks.train.scaling", __doc__, measure))
