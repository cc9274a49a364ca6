"""Fake a backend and a checkpoint saver that record the training loop's requests."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from trainer.backend import NO_FLAGS, Backend, StepFlags, StepResult, TrainingState, Weights
from trainer.checkpoint import CheckpointSaver
from trainer.config.settings import TrainConfig
from trainer.data import Images, Labels
from trainer.data.batches import LoadBatch, load_and_transform
from trainer.data.dataset import Dataset, InMemory
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.metrics.results import Clock
from trainer.metrics.step_timer import StepTimer
from trainer.progress import Progress
from trainer.train import Trainer

SAMPLES = 10
SINGLE_RANK = DataParallelGroup()
"""The only rank of its model, which computes every batch."""


def make_numbered_samples() -> Dataset:
    """Return images of one pixel, which is the image's number."""
    pixels = np.arange(SAMPLES, dtype=np.uint8).reshape(-1, 1, 1, 1)
    samples = InMemory(pixels=pixels, labels=np.zeros(SAMPLES, np.int64))
    return Dataset(train=samples, validation=samples, image_shape=(1, 1, 1), num_classes=1)


STEP_S = 0.5
VALIDATION_S = 100.0


class RecordingBackend:
    """Classifies every image correctly, and records the loop's requests."""

    def __init__(self, *, losses: Sequence[float]) -> None:
        self._losses = iter(losses)
        self.timer = StepTimer()
        self.peak_samples_per_s: float | None = None
        self.seen: list[list[float]] = []
        self.updates: list[int] = []
        self.rates: list[float] = []
        """Learning rates, one entry per change."""
        self.seeds: list[int] = []
        self.validated: list[int] = []
        """Images of each call of count_correct."""
        self._now = 0.0

    def clock(self) -> float:
        """Return a time that passes only here: STEP_S in each step, VALIDATION_S in each batch of validation."""
        return self._now

    def make_batch_loader(self, data: Dataset) -> LoadBatch:
        return partial(load_and_transform, data)

    def take_deferred(self) -> StepResult | None:
        return None

    def forward_backward(self, images: Images, labels: Labels, *, flags: StepFlags = NO_FLAGS) -> StepResult:
        self._now += STEP_S
        self.seen.append(images.ravel().tolist())
        return StepResult(loss_sum=next(self._losses), correct=len(labels), flags=flags)

    def seed(self, number: int) -> None:
        self.seeds.append(number)

    def set_timeout(self, seconds: float) -> None:
        pass

    def set_learning_rate(self, rate: float) -> None:
        if rate not in self.rates[-1:]:
            self.rates.append(rate)

    def optimizer_step(self, *, num_samples: int) -> None:
        self.updates.append(num_samples)

    def count_correct(self, images: Images, labels: Labels) -> int:
        self._now += VALIDATION_S
        self.validated.append(len(labels))
        return len(labels)

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def broadcast_object(self, value: Any, *, source: int) -> Any:
        return value

    def weights(self) -> Weights:
        return {"a": np.zeros(1)}

    def state(self) -> TrainingState:
        return TrainingState(weights=self.weights())

    def snapshot(self) -> Callable[[], TrainingState]:
        return self.state

    def restore(self, state: TrainingState | None, *, source: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class RecordingSaver:
    """Returns the given flags, step by step, and records what is saved."""

    def __init__(self, *flags: StepFlags) -> None:
        self._flags = iter(flags)
        self.saved: list[Progress] = []

    def flags(self) -> StepFlags:
        return next(self._flags, NO_FLAGS)

    def save(self, backend: Backend, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        self.saved.append(progress)


def make_trainer(
    backend: RecordingBackend,
    config: TrainConfig,
    *,
    dp: DataParallelGroup = SINGLE_RANK,
    global_batch_size: int = 4,
    checkpoints: CheckpointSaver | None = None,
    clock: Clock = time.perf_counter,
) -> Trainer:
    """Return a trainer on the numbered samples."""
    return Trainer(
        backend=backend,
        data=make_numbered_samples(),
        config=config,
        dp=dp,
        global_batch_size=global_batch_size,
        checkpoints=checkpoints or RecordingSaver(),
        clock=clock,
    )
