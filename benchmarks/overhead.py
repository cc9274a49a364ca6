"""What does our trainer cost beside a bare script, and what does it gain over MXNet's?

Two workers of one core, a node each (benchmarks/_pair.py), the same networks, batches and optimizer. Ours writes all
of its figures, as lines of JSON and for TensorBoard, validates and keeps checkpoints; the bare DistributedDataParallel
script (benchmarks/_bare_ddp.py) and MXNet's with gluon.Trainer and one server a worker (benchmarks/_bare_mxnet.py) do
nothing but train. Rounds in turns, of each the best; images/s of ours over theirs, taken in two ways:

``overhead_lenet`` and ``overhead_resnet110`` (at least 1.00), ``vs_mxnet_lenet`` (aim 1.0) and ``vs_mxnet_resnet110``
(at least 1.6) are within an epoch: the sum of each worker's own fastest window of a few steps. What else the machine
does hardly counts there. Nor does what ours alone does between epochs, and the sum flatters all three: one worker's
fastest window need not be the other's.

The same names with ``_epochs`` are over whole epochs, from the end of the first one's steps to that of the last one's:
between two of them ours validates, writes its figures and keeps a checkpoint, and the others go on at once. They are
noisier, and these epochs are so short that what is between them counts for more than in a training.

Run by ``make bench B=overhead`` or ``python -m benchmarks.overhead [--rounds N] [--network NAME]``, as root.
"""

import sys

from benchmarks._mxnet import environment, mxnet
from benchmarks._pair import Contestant, compare, run_rounds, trainer
from benchmarks._work import WORK

METRICS = ("--metrics", "metrics.jsonl", "--tensorboard", "events")


def measure(rounds: int, networks: list[str]) -> list[str]:
    """Return the figures."""
    figures = []
    for network in networks:
        work = WORK[network]
        ours = Contestant(
            name=f"{network} ours", command=trainer(network, store="dist_sync", workers=2, more=METRICS), work=work
        )
        bare = Contestant(
            name=f"{network} bare script", command=[sys.executable, "-m", "benchmarks._bare_ddp", network], work=work
        )
        other = mxnet(network)
        compare([ours, bare, other], rounds=rounds)
        for name, peer in ((f"overhead_{network}", bare), (f"vs_mxnet_{network}", other)):
            figures.append(f"{name} {ours.best / peer.best:.2f} ratio")
            figures.append(f"{name}_epochs {ours.best_whole / peer.best_whole:.2f} ratio")
    return figures


if __name__ == "__main__":
    sys.exit(run_rounds("benchmarks.overhead", __doc__, measure, fetch=environment))
