"""The training itself: epochs, steps, validation. Every rank runs it in step with the others."""

import logging
import math
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from trainer.bar import Bar
from trainer.config import TrainConfig
from trainer.data import Labels
from trainer.data.batches import Augmentation, ahead
from trainer.data.samples import DataSet
from trainer.engines import NOTHING, Asks, BatchResult, Engine, Reader
from trainer.errors import StoppedError, TrainerError
from trainer.gather import gather
from trainer.metrics import Clock, EpochResult, Pace, Speedometer, digest
from trainer.phases import PHASES, describe_slowest, mean, shares
from trainer.profiling import Profiling
from trainer.progress import Progress
from trainer.records import Records
from trainer.sampling import Indices, Shard, global_batches, step_seed
from trainer.schedule import Rates

log = logging.getLogger(__name__)

VALIDATION_BATCH = 256
BEGINNING: Final = Progress()
NO_RECORDS: Final = Records()
NO_BAR: Final = Bar()
NO_PROFILING: Final = Profiling()


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
    records: Records = NO_RECORDS,
    bar: Bar = NO_BAR,
    profiling: Profiling = NO_PROFILING,
    begin: Progress = BEGINNING,
    clock: Clock = time.perf_counter,
) -> list[EpochResult]:
    """Train all epochs from ``begin`` on and return what each came to; StoppedError when a rank was told to stop."""
    results = []
    progress = begin
    rates = Rates(config.schedule(global_batch_size=global_batch_size))
    read = engine.reader(data)
    for epoch in range(begin.epoch, config.num_epochs):
        job = _Epoch(
            data=data,
            config=config,
            shard=shard,
            global_batch_size=global_batch_size,
            records=records,
            bar=bar,
            profiling=profiling,
            clock=clock,
        )
        result = job.run(engine, read, progress, keeping, rates)
        results.append(result)
        if shard.index == 0:
            log.info("Epoch[%d] %s", epoch, result)
            log.info("Epoch[%d] where its time went: %s", epoch, shares(result.phases))
            if result.slowest is not None:
                log.warning("Epoch[%d] %s", epoch, result.slowest)
            records.write(result.figures, epoch=epoch, samples=(epoch + 1) * len(data.train.labels))
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
    records: Records
    bar: Bar
    profiling: Profiling
    clock: Clock

    def run(self, engine: Engine, read: Reader, begin: Progress, keeping: Keeping, rates: Rates) -> EpochResult:
        """Train on what is left of the epoch, and validate."""
        train, held_out = len(self.data.train.labels), len(self.data.held_out.labels)
        speedometer = Speedometer(every=self.config.disp_batches, clock=self.clock)
        progress, started = begin, self.clock()
        # What ranks counted before an interruption is counted once.
        own_correct = begin.correct if self.shard.index == 0 else 0
        phases = engine.phases
        phases.take()
        phases.start()
        with closing(self._batches(begin, read)) as batches:
            for step, samples, images, labels in batches:
                phases.end("data")
                self.profiling.begin_step()
                engine.seed(step_seed(self.config.seed, epoch=begin.epoch, samples=progress.samples, shard=self.shard))
                result = engine.compute_gradients(images, labels, asks=keeping.asks())
                progress = _counted(result, replace(progress, samples=progress.samples + samples), step=step)
                rates.set(engine, epoch=begin.epoch, trained=progress.samples / train)
                engine.update(samples=samples)
                phases.end("optimizer")
                wanted = speedometer.due or result.asks != NOTHING or progress.samples == train
                correct = result.correct
                if wanted and (late := engine.settle()):
                    progress = _counted(late, progress, step=step)
                    correct += late.correct
                    # Of two steps at once, if the one before was late too.
                    result = replace(late, asks=result.asks | late.asks)
                own_correct += correct
                self.bar.show(progress, total=train)
                if pace := speedometer.add(samples=len(labels), correct=correct):
                    log.info("Epoch[%d] Batch [%d] %s", begin.epoch, step, pace)
                    self._record(pace, progress, loss=result.loss_sum / samples)
                if result.asks != NOTHING:
                    [counted] = engine.sum_over_ranks([own_correct])
                    keeping.keep(engine, replace(progress, correct=int(counted)))
                if result.asks.stop:
                    raise StoppedError("with a checkpoint")
                phases.start()
        seconds = self.clock() - started
        # Before the validation: with dist_async it is here that all ranks have done their steps, and get equal weights.
        rows = gather(engine, [own_correct, *phases.take().values()], shard=self.shard)
        all_correct = sum(row[0] for row in rows)
        ranks = [dict(zip(PHASES, row[1:], strict=True)) for row in rows]
        [valid] = engine.sum_over_ranks([self._count_correct(engine, read)])
        peak = engine.peak_speed
        utilisation = None if peak is None else (train - begin.samples) / seconds / (self.shard.count * peak)
        return EpochResult(
            samples=train - begin.samples,
            loss=progress.loss_sum / train,
            train_accuracy=all_correct / train,
            validation_accuracy=valid / held_out,
            seconds=seconds,
            utilisation=utilisation,
            phases=mean(ranks),
            slowest=describe_slowest(ranks),
        )

    def _record(self, pace: Pace, progress: Progress, *, loss: float) -> None:
        figures = {"train/loss": loss, "train/accuracy": pace.accuracy, "speed/rank_0": pace.speed}
        samples = progress.epoch * len(self.data.train.labels) + progress.samples
        self.records.write(figures, epoch=progress.epoch, samples=samples)

    def _batches(self, begin: Progress, read: Reader) -> Generator[tuple[int, int, Any, Labels], None, None]:
        """Yield the number of each step, the samples of all ranks in it, and this rank's."""
        train, config = self.data.train, self.config
        total = len(train.labels)
        augmentation = Augmentation(
            random_crop=config.random_crop, random_mirror=config.random_mirror, seed=config.seed
        )
        draws = augmentation.draw(epoch=begin.epoch, samples=total)
        size = self.global_batch_size
        batches = global_batches(
            total, global_batch_size=size, seed=config.seed, epoch=begin.epoch, begin=begin.samples
        )

        def ready(numbered: tuple[int, Indices]) -> tuple[int, int, Any, Labels]:
            step, batch = numbered
            return step, len(batch), *read(train, self.shard.of(batch), draws)

        return ahead(enumerate(batches, start=begin.samples // size + 1), ready)

    def _count_correct(self, engine: Engine, read: Reader) -> int:
        """Return how many of this rank's part of the held-out images the network recognises."""
        held_out = self.data.held_out
        own = self.shard.of(np.arange(len(held_out.labels)))
        parts = (own[start : start + VALIDATION_BATCH] for start in range(0, len(own), VALIDATION_BATCH))
        with closing(ahead(parts, lambda part: read(held_out, part))) as batches:
            return sum(engine.count_correct(images, labels) for images, labels in batches)


def _counted(result: BatchResult, progress: Progress, *, step: int) -> Progress:
    """Count a step's loss; TrainerError when it is not finite, before a checkpoint can hold what it has spoilt.

    Its own update has been withheld, by this or, where it is late, by the engine, and the next one is not reached.
    """
    if not math.isfinite(result.loss_sum):
        place = f"epoch {progress.epoch} batch {step - result.steps_ago}"
        raise TrainerError(
            f"loss is {result.loss_sum} at {place}, try a lower --lr (with --resume never, where an epoch is done)"
        )
    return replace(progress, loss_sum=progress.loss_sum + result.loss_sum)
