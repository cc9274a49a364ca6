"""What does our trainer cost beside a bare script, and what does it gain over MXNet's?

Two workers of one core, a node each (benchmarks/_pair.py), the same networks, batches and optimizer. Ours writes all
of its figures, as lines of JSON and for TensorBoard, validates and keeps checkpoints; the bare DistributedDataParallel
script (benchmarks/_bare_ddp.py) and MXNet's with gluon.Trainer and one server a worker (benchmarks/_bare_mxnet.py) do
nothing but train. Images/s of ours over theirs: ``overhead_lenet`` and ``overhead_resnet110`` (at least 1.00),
``vs_mxnet_lenet`` (aim 1.0) and ``vs_mxnet_resnet110`` (at least 1.6). Rounds in turns, of each the best, in windows
within an epoch; printed beside them are images/s over whole epochs, between which ours alone validates and keeps.
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
        figures.append(f"overhead_{network} {ours.best / bare.best:.2f} ratio")
        figures.append(f"vs_mxnet_{network} {ours.best / other.best:.2f} ratio")
    return figures


if __name__ == "__main__":
    sys.exit(run_rounds("benchmarks.overhead", __doc__, measure, fetch=environment))
