"""Measure what our trainer costs compared with a bare script, and what it gains over MXNet's.

Two workers of one core, a node each (harness/pair.py), train the same networks with the same batches and optimizer.
Ours writes all its metrics as lines of JSON and for TensorBoard, validates and saves checkpoints. The bare
DistributedDataParallel script (_bare_ddp.py) and MXNet's with gluon.Trainer and one server per worker
(_bare_mxnet.py) only train. Rounds run in turns, and the best of each counts. Figures are our images/s over
theirs, taken in two ways:

``overhead_lenet`` and ``overhead_resnet110`` (at least 1.00), ``vs_mxnet_lenet`` (aim 1.0) and ``vs_mxnet_resnet110``
(at least 1.6) are within an epoch: the sum of each worker's own fastest window of a few steps. Other load on the
machine hardly counts there. Neither does what only ours does between epochs, and the sum flatters all three: the
workers' fastest windows need not coincide.

The same names with ``_epochs`` are over whole epochs, from the end of the first one's steps to the end of the last
one's: between epochs ours validates, writes its metrics and saves a checkpoint, and the others continue at once. They
are noisier, and these epochs are so short that the work between them counts for more than in a real training.

Run by ``make bench B=overhead`` or ``python -m benchmarks.train.overhead [--rounds N] [--network NAME]``, as root.
"""

import sys

from benchmarks.harness.pair import Contestant, compare, run_rounds, trainer_command
from benchmarks.harness.work import WORK
from benchmarks.train._mxnet import environment, mxnet

METRICS = ("--metrics", "metrics.jsonl", "--tensorboard", "events")


def measure(rounds: int, networks: list[str]) -> list[str]:
    """Measure, and return the figures."""
    figures = []
    for network in networks:
        work = WORK[network]
        ours = Contestant(
            name=f"{network} ours",
            command=trainer_command(network, store="dist_sync", workers=2, more=METRICS),
            work=work,
        )
        bare = Contestant(
            name=f"{network} bare script",
            command=[sys.executable, "-m", "benchmarks.train._bare_ddp", network],
            work=work,
        )
        other = mxnet(network)
        compare([ours, bare, other], rounds=rounds)
        for name, peer in ((f"overhead_{network}", bare), (f"vs_mxnet_{network}", other)):
            figures.append(f"{name} {ours.best / peer.best:.2f} ratio")
            figures.append(f"{name}_epochs {ours.best_epoch_speed / peer.best_epoch_speed:.2f} ratio")
    return figures


if __name__ == "__main__":
    sys.exit(run_rounds("benchmarks.train.overhead", __doc__, measure, fetch=environment))
