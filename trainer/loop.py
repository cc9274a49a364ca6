"""The training itself: epochs, steps, validation. Every rank runs it in step with the others."""

import logging
import math
import time

import numpy as np

from trainer.config import TrainConfig
from trainer.data import DataSet, Samples
from trainer.engines import Engine
from trainer.errors import TrainerError
from trainer.metrics import Clock, EpochResult, Speedometer, digest
from trainer.sampling import Shard, global_batches

log = logging.getLogger(__name__)

VALIDATION_BATCH = 256


def train(
    engine: Engine,
    data: DataSet,
    *,
    config: TrainConfig,
    shard: Shard,
    global_batch_size: int,
    clock: Clock = time.perf_counter,
) -> list[EpochResult]:
    """Train all epochs and return what each came to."""
    results = []
    for epoch in range(config.num_epochs):
        result = _train_epoch(
            engine, data, epoch=epoch, config=config, shard=shard, global_batch_size=global_batch_size, clock=clock
        )
        results.append(result)
        if shard.index == 0:
            log.info(
                "Epoch[%d] Train-accuracy=%.6f Validation-accuracy=%.6f loss=%.6f Time cost=%.3f "
                "Speed=%.2f samples/sec (all workers)",
                epoch,
                result.train_accuracy,
                result.validation_accuracy,
                result.loss,
                result.seconds,
                result.speed,
            )
        log.info("Epoch[%d] weights=%s", epoch, digest(engine.weights()))
    return results


def _train_epoch(
    engine: Engine,
    data: DataSet,
    *,
    epoch: int,
    config: TrainConfig,
    shard: Shard,
    global_batch_size: int,
    clock: Clock,
) -> EpochResult:
    train = data.train
    speedometer = Speedometer(every=config.disp_batches, clock=clock)
    loss_sum, own_correct, started = 0.0, 0, clock()
    batches = global_batches(len(train), global_batch_size=global_batch_size, seed=config.seed, epoch=epoch)
    for step, batch in enumerate(batches, start=1):
        own = shard.of(batch)
        result = engine.compute_gradients(train.images[own], train.labels[own])
        if not math.isfinite(result.loss_sum):
            raise TrainerError(f"loss is {result.loss_sum} at epoch {epoch} batch {step}, try a lower --lr")
        engine.update(samples=len(batch))
        loss_sum += result.loss_sum
        own_correct += result.correct
        if progress := speedometer.add(samples=len(own), correct=result.correct):
            log.info("Epoch[%d] Batch [%d] %s", epoch, step, progress)
    seconds = clock() - started
    own_valid = _count_correct(engine, data.held_out, shard=shard)
    correct, valid = engine.sum_over_ranks([own_correct, own_valid])
    return EpochResult(
        samples=len(train),
        loss=loss_sum / len(train),
        train_accuracy=correct / len(train),
        validation_accuracy=valid / len(data.held_out),
        seconds=seconds,
    )


def _count_correct(engine: Engine, samples: Samples, *, shard: Shard) -> int:
    own = shard.of(np.arange(len(samples)))
    batches = (own[start : start + VALIDATION_BATCH] for start in range(0, len(own), VALIDATION_BATCH))
    return sum(engine.count_correct(samples.images[batch], samples.labels[batch]) for batch in batches)
