"""The training itself: epochs, steps, validation. Every rank runs it in step with the others."""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from trainer.config import TrainConfig
from trainer.data import DataSet, Samples
from trainer.engines import NOTHING, Asks, Engine
from trainer.errors import StoppedError, TrainerError
from trainer.metrics import Clock, EpochResult, Speedometer, digest
from trainer.progress import Progress
from trainer.sampling import Indices, Shard, global_batches

log = logging.getLogger(__name__)

VALIDATION_BATCH = 256
BEGINNING: Final = Progress()


class Keeping(Protocol):
    """When to keep a checkpoint, and how; see trainer.checkpoints."""

    def asks(self) -> Asks:
        """What this rank wants after the step that begins."""

    def keep(self, engine: Engine, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        """Keep a checkpoint of this place; called on all ranks at the same step."""


def train(
    engine: Engine,
    data: DataSet,
    *,
    config: TrainConfig,
    shard: Shard,
    global_batch_size: int,
    keeping: Keeping,
    begin: Progress = BEGINNING,
    clock: Clock = time.perf_counter,
) -> list[EpochResult]:
    """Train all epochs from ``begin`` on and return what each came to; StoppedError when a rank was told to stop."""
    results = []
    progress = begin
    for epoch in range(begin.epoch, config.num_epochs):
        job = _Epoch(data=data, config=config, shard=shard, global_batch_size=global_batch_size, clock=clock)
        result = job.run(engine, progress, keeping)
        results.append(result)
        if shard.index == 0:
            log.info("Epoch[%d] %s", epoch, result)
        log.info("Epoch[%d] weights=%s", epoch, digest(engine.weights()))
        progress = Progress(started=begin.started, epoch=epoch + 1)
        if progress.epoch < config.num_epochs:
            keeping.keep(engine, progress, validation_accuracy=result.validation_accuracy)
    return results


@dataclass(frozen=True, kw_only=True, slots=True)
class _Epoch:
    """One pass over the samples."""

    data: DataSet
    config: TrainConfig
    shard: Shard
    global_batch_size: int
    clock: Clock

    def run(self, engine: Engine, begin: Progress, keeping: Keeping) -> EpochResult:
        """Train on what is left of the epoch, and validate."""
        train, held_out = self.data.train, self.data.held_out
        speedometer = Speedometer(every=self.config.disp_batches, clock=self.clock)
        progress, started = begin, self.clock()
        # What ranks counted before an interruption is counted once.
        own_correct = begin.correct if self.shard.index == 0 else 0
        for step, batch in self._batches(begin):
            own = self.shard.of(batch)
            result = engine.compute_gradients(train.images[own], train.labels[own], asks=keeping.asks())
            if not math.isfinite(result.loss_sum):
                raise TrainerError(f"loss is {result.loss_sum} at epoch {begin.epoch} batch {step}, try a lower --lr")
            engine.update(samples=len(batch))
            own_correct += result.correct
            progress = replace(
                progress, samples=progress.samples + len(batch), loss_sum=progress.loss_sum + result.loss_sum
            )
            if said := speedometer.add(samples=len(own), correct=result.correct):
                log.info("Epoch[%d] Batch [%d] %s", begin.epoch, step, said)
            if result.asks != NOTHING:
                [correct] = engine.sum_over_ranks([own_correct])
                keeping.keep(engine, replace(progress, correct=int(correct)))
            if result.asks.stop:
                raise StoppedError
        seconds = self.clock() - started
        own_valid = _count_correct(engine, held_out, shard=self.shard)
        correct, valid = engine.sum_over_ranks([own_correct, own_valid])
        return EpochResult(
            samples=len(train) - begin.samples,
            loss=progress.loss_sum / len(train),
            train_accuracy=correct / len(train),
            validation_accuracy=valid / len(held_out),
            seconds=seconds,
        )

    def _batches(self, begin: Progress) -> Iterator[tuple[int, Indices]]:
        batches = global_batches(
            len(self.data.train),
            global_batch_size=self.global_batch_size,
            seed=self.config.seed,
            epoch=begin.epoch,
            begin=begin.samples,
        )
        return enumerate(batches, start=begin.samples // self.global_batch_size + 1)


def _count_correct(engine: Engine, samples: Samples, *, shard: Shard) -> int:
    own = shard.of(np.arange(len(samples)))
    batches = (own[start : start + VALIDATION_BATCH] for start in range(0, len(own), VALIDATION_BATCH))
    return sum(engine.count_correct(samples.images[batch], samples.labels[batch]) for batch in batches)
