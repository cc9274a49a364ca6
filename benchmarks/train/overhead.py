"""Compare the trainer's speed with two baselines: a bare PyTorch script, and MXNet.

Two workers with one core each, on a node each (harness/pair.py), train the same networks with the same batches and
optimizer. The trainer also writes metrics as JSON lines and for TensorBoard, validates and saves checkpoints. The
baselines only train: a DistributedDataParallel script (_bare_ddp.py) with buckets of three sizes, of which the fastest
counts, and MXNet's gluon.Trainer with one server per worker (_bare_mxnet.py). Rounds run in turn, and the best of each
counts. Results are the trainer's images/s divided by the baseline's, measured in two ways:

``overhead_lenet``, ``overhead_resnet110``, ``vs_mxnet_lenet`` and ``vs_mxnet_resnet110`` measure within an epoch: the
sum of each worker's fastest window of a few steps. Other load on the machine hardly affects them. They leave out the
trainer's work between epochs, and overstate all speeds, because the workers' fastest windows need not coincide.

The same names with ``_epochs`` measure over whole epochs, from the end of the first epoch's steps to the end of the
last one's, with the trainer's validation, metrics and checkpoint in between. They are noisier, and these epochs are so
short that the work between them weighs more than in a real run.

Run by ``make bench B=overhead`` or ``python -m benchmarks.train.overhead [--rounds N] [--network NAME]``, as root.
"""

import sys

from benchmarks.harness.pair import Contestant, compare, run_rounds, trainer_command
from benchmarks.harness.work import WORK
from benchmarks.train._mxnet import environment, mxnet

BUCKETS_MB = (1, 5, 25)
"""Sizes of the baseline's gradient buckets (bucket_cap_mb); 25 is PyTorch's default, its smallest bucket is of 1."""
METRICS = ("--metrics", "metrics.jsonl", "--tensorboard", "events")


def measure(rounds: int, networks: list[str]) -> list[str]:
    """Measure; return the result lines."""
    results = []
    for network in networks:
        work = WORK[network]
        ours = Contestant(
            name=f"{network} ours",
            command=trainer_command(network, store="dist_sync", workers=2, more=METRICS),
            work=work,
        )
        bare = [
            Contestant(
                name=f"{network} bare script, buckets of {size} MB",
                command=[sys.executable, "-m", "benchmarks.train._bare_ddp", network, str(size)],
                work=work,
            )
            for size in BUCKETS_MB
        ]
        gluon = mxnet(network)
        compare([ours, *bare, gluon], rounds=rounds)
        for name, peers in ((f"overhead_{network}", bare), (f"vs_mxnet_{network}", [gluon])):
            best, best_epoch = max(peer.best for peer in peers), max(peer.best_epoch_speed for peer in peers)
            results.append(f"{name} {ours.best / best:.3f} ratio")
            results.append(f"{name}_epochs {ours.best_epoch_speed / best_epoch:.3f} ratio")
    return results


if __name__ == "__main__":
    sys.exit(run_rounds("benchmarks.train.overhead", __doc__, measure, fetch=environment))
