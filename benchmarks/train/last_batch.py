"""Measure whether an epoch's small last batch helps or harms: --last-batch keep, compared with drop.

ResNet-20 learns 512 of the digits and a few more, in batches of 128: the extra ones are the last batch of an epoch, or
are dropped (the next epoch has another order, so that every digit gets its turn). Each run is repeated with two seeds,
and both ways train for the same number of epochs. Results are ratios of validation accuracies, drop divided by keep:

``last_batch_RATE`` is their mean over last batches of 1, 16 and 64 samples at the learning rates 0.1 and 0.8, and
``last_batch_worst`` the minimum. At least 1 means that drop is the better default.

Run by ``make bench B=last_batch`` or ``python -m benchmarks.train.last_batch``; it takes some minutes of one core.
"""

import logging
import os
from dataclasses import replace
from statistics import fmean

import torch

from trainer.checkpoint.manager import CheckpointManager
from trainer.config.settings import TrainConfig
from trainer.data.dataset import Dataset, InMemory
from trainer.data.digits import load_digits
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.torch_backend.create_backend import create_backend
from trainer.train import Trainer

SHAPE = (1, 8, 8)
BATCH, FULL_BATCHES = 128, 4
TAILS = (1, 16, 64)
RATES = (0.1, 0.8)
SEEDS = (0, 1)
EPOCHS = 16


def cut(data: Dataset, samples: int) -> Dataset:
    """Return the dataset with this many training samples."""
    assert isinstance(data.train, InMemory)
    return replace(data, train=InMemory(pixels=data.train.pixels[:samples], labels=data.train.labels[:samples]))


def learn(data: Dataset, *, last_batch: str, rate: float, seed: int) -> tuple[float, float]:
    """Return the loss and the validation accuracy of the last epoch."""
    config = TrainConfig(
        network="resnet20",
        image_shape=SHAPE,
        batch_size_per_node=BATCH,
        num_epochs=EPOCHS,
        lr=rate,
        seed=seed,
        last_batch=last_batch,
    )
    [*_, last] = Trainer(
        backend=create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=rate),
        data=data,
        config=config,
        dp=DataParallelGroup(),
        global_batch_size=BATCH,
        checkpoints=CheckpointManager(config, dp=DataParallelGroup(), store=None),
    ).train()
    return last.loss, last.validation_accuracy


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    # The trainer gives PyTorch all cores unless this is set.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    digits = load_digits(SHAPE)
    figures, every = [], []
    for rate in RATES:
        ratios = []
        for tail in TAILS:
            data = cut(digits, FULL_BATCHES * BATCH + tail)
            results_by_way = {
                way: [learn(data, last_batch=way, rate=rate, seed=seed) for seed in SEEDS] for way in ("keep", "drop")
            }
            for way, results in results_by_way.items():
                losses, accuracies = (
                    ", ".join(f"{value:.3f}" for value in values) for values in zip(*results, strict=True)
                )
                print(f"rate {rate} tail {tail} {way}: loss {losses} accuracy {accuracies}", flush=True)
            kept, dropped = (fmean(accuracy for _, accuracy in results_by_way[way]) for way in ("keep", "drop"))
            ratios.append(dropped / kept)
        every += ratios
        figures.append(f"last_batch_{rate:g} {fmean(ratios):.2f} ratio".replace(".", "_", 1))
    print("\n".join([*figures, f"last_batch_worst {min(every):.2f} ratio"]))


if __name__ == "__main__":
    main()
