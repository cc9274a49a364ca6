"""An engine and a keeper that note what the training loop asks of them."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from trainer.data import Images, Labels
from trainer.data.batches import prepare
from trainer.data.samples import DataSet, InMemory
from trainer.engines import NOTHING, Asks, BatchResult, Engine, Reader, State, Weights
from trainer.phases import Phases
from trainer.progress import Progress

SAMPLES = 10


def numbered_samples() -> DataSet:
    """Each image is one pixel, its number."""
    pixels = np.arange(SAMPLES, dtype=np.uint8).reshape(-1, 1, 1, 1)
    samples = InMemory(pixels=pixels, labels=np.zeros(SAMPLES, np.int64))
    return DataSet(train=samples, held_out=samples, image_shape=(1, 1, 1), classes=1)


class RecordingEngine:
    """Knows the label of every image, and notes what the loop asks of it."""

    def __init__(self, *, losses: Sequence[float]) -> None:
        self._losses = iter(losses)
        self.phases = Phases()
        self.peak_speed: float | None = None
        self.seen: list[list[float]] = []
        self.updates: list[int] = []
        self.rates: list[float] = []
        self.seeds: list[int] = []

    def reader(self, data: DataSet) -> Reader:
        return partial(prepare, data)

    def settle(self) -> BatchResult | None:
        return None

    def compute_gradients(self, images: Images, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        self.seen.append(images.ravel().tolist())
        return BatchResult(loss_sum=next(self._losses), correct=len(labels), asks=asks)

    def seed(self, number: int) -> None:
        self.seeds.append(number)

    def expect_pause(self, seconds: float) -> None:
        pass

    def set_learning_rate(self, rate: float) -> None:
        self.rates.append(rate)

    def update(self, *, samples: int) -> None:
        self.updates.append(samples)

    def count_correct(self, images: Images, labels: Labels) -> int:
        return len(labels)

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def weights(self) -> Weights:
        return {"a": np.zeros(1)}

    def state(self) -> State:
        return State(weights=self.weights())

    def snapshot(self) -> Callable[[], State]:
        return self.state

    def restore(self, state: State | None, *, source: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Notes:
    """Asks for what it was given, step by step, and notes what is kept."""

    def __init__(self, *asks: Asks) -> None:
        self._asks = iter(asks)
        self.kept: list[Progress] = []

    def asks(self) -> Asks:
        return next(self._asks, NOTHING)

    def keep(self, engine: Engine, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        self.kept.append(progress)
