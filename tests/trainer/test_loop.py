import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from trainer.config import TrainConfig
from trainer.data import Images, Labels
from trainer.data.batches import prepare
from trainer.data.samples import DataSet, InMemory
from trainer.engines import NOTHING, NOTHING_YET, Asks, BatchResult, Engine, Reader, State, Weights
from trainer.errors import StoppedError, TrainerError
from trainer.loop import train
from trainer.phases import Phases
from trainer.progress import Progress
from trainer.sampling import Shard

SAMPLES = 10


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


class LateEngine(RecordingEngine):
    """Returns a step's result in the next one, as an engine on a GPU does."""

    _late: BatchResult | None = None

    def compute_gradients(self, images: Images, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        before, self._late = self._late, super().compute_gradients(images, labels, asks=asks)
        return replace(before, steps_ago=1) if before else NOTHING_YET

    def settle(self) -> BatchResult | None:
        late, self._late = self._late, None
        return late


class Notes:
    """Asks for what it was given, step by step, and notes what is kept."""

    def __init__(self, *asks: Asks) -> None:
        self._asks = iter(asks)
        self.kept: list[Progress] = []

    def asks(self) -> Asks:
        return next(self._asks, NOTHING)

    def keep(self, engine: Engine, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        self.kept.append(progress)


@pytest.fixture
def data() -> DataSet:
    pixels = np.arange(SAMPLES, dtype=np.uint8).reshape(-1, 1, 1, 1)
    samples = InMemory(pixels=pixels, labels=np.zeros(SAMPLES, np.int64))
    return DataSet(train=samples, held_out=samples, image_shape=(1, 1, 1), classes=1)


def test_trains_on_every_sample_once_an_epoch_and_divides_by_the_global_batch(data: DataSet) -> None:
    engine = RecordingEngine(losses=[4, 4, 2])
    config = TrainConfig(num_epochs=1)
    times = iter([0.0, 0.0, 2.0])
    [result] = train(
        engine, data, config=config, shard=Shard(), global_batch_size=4, keeping=Notes(), clock=lambda: next(times)
    )
    assert sorted(value for batch in engine.seen for value in batch) == list(range(SAMPLES))
    assert engine.updates == [4, 4, 2]
    assert result.loss == pytest.approx(1)
    assert result.train_accuracy == result.validation_accuracy == 1
    assert result.speed == pytest.approx(5)


def test_utilisation_is_of_all_ranks_devices(data: DataSet) -> None:
    engine = RecordingEngine(losses=[4, 4, 2])
    engine.peak_speed = 10.0
    times = iter([0.0, 0.0, 2.0])
    [result] = train(
        engine,
        data,
        config=TrainConfig(num_epochs=1),
        shard=Shard(index=0, count=2),
        global_batch_size=4,
        keeping=Notes(),
        clock=lambda: next(times),
    )
    # 10 samples in 2 seconds, where two devices could have done 40.
    assert result.utilisation == pytest.approx(0.25)


def test_every_rank_makes_equally_many_steps_also_without_samples(data: DataSet) -> None:
    steps = []
    for index in range(3):
        engine = RecordingEngine(losses=[0] * 3)
        train(
            engine,
            data,
            config=TrainConfig(num_epochs=1),
            shard=Shard(index=index, count=3),
            global_batch_size=4,
            keeping=Notes(),
        )
        steps.append([len(batch) for batch in engine.seen])
        assert engine.updates == [4, 4, 2]
    assert steps == [[1, 1, 0], [1, 1, 1], [2, 2, 1]]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_fails_when_the_loss_is_not_finite_before_the_weights_change(data: DataSet, loss: float) -> None:
    engine = RecordingEngine(losses=[1, loss])
    with pytest.raises(TrainerError, match=f"loss is {loss} at epoch 0 batch 2, try a lower --lr"):
        train(engine, data, config=TrainConfig(), shard=Shard(), global_batch_size=4, keeping=Notes())
    assert engine.updates == [4]


def test_a_checkpoint_is_kept_after_each_epoch_but_the_last_and_when_a_rank_asks(data: DataSet) -> None:
    notes = Notes(NOTHING, Asks(save=True))
    train(
        RecordingEngine(losses=[4, 2, 1] * 3),
        data,
        config=TrainConfig(num_epochs=3),
        shard=Shard(),
        global_batch_size=4,
        keeping=notes,
        begin=Progress(started=7),
    )
    assert notes.kept == [
        Progress(started=7, epoch=0, samples=8, loss_sum=6, correct=8),
        Progress(started=7, epoch=1),
        Progress(started=7, epoch=2),
    ]


def test_what_was_stopped_goes_on_with_the_next_batch_and_counts_all_once(data: DataSet) -> None:
    config = TrainConfig(num_epochs=2)
    first, notes = RecordingEngine(losses=[4] * 4), Notes(*[NOTHING] * 3, Asks(stop=True))
    with pytest.raises(StoppedError):
        train(first, data, config=config, shard=Shard(), global_batch_size=4, keeping=notes)
    second, begin = RecordingEngine(losses=[3, 3]), notes.kept[-1]
    assert begin == Progress(epoch=1, samples=4, loss_sum=4, correct=4)
    [result] = train(second, data, config=config, shard=Shard(), global_batch_size=4, keeping=Notes(), begin=begin)
    whole = RecordingEngine(losses=[1] * 6)
    train(whole, data, config=config, shard=Shard(), global_batch_size=4, keeping=Notes())
    assert first.seen + second.seen == whole.seen
    assert (result.loss, result.train_accuracy, result.samples) == (1, 1, 6)


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_on_another_number_of_ranks_each_sample_of_the_epoch_still_counts_once(
    data: DataSet, before: int, after: int
) -> None:
    def part(count: int, notes: Callable[[], Notes], begin: Progress) -> tuple[list[float], Progress | None]:
        """What ranks of two samples each see in what is left of the epoch, and the place where they were stopped."""
        seen, stopped = [], None
        for index in range(count):
            engine, keeping = RecordingEngine(losses=[0] * SAMPLES), notes()
            with suppress(StoppedError):
                train(
                    engine,
                    data,
                    config=TrainConfig(num_epochs=1),
                    shard=Shard(index=index, count=count),
                    global_batch_size=2 * count,
                    keeping=keeping,
                    begin=begin,
                )
            seen += [value for batch in engine.seen for value in batch]
            stopped = keeping.kept[-1] if keeping.kept else None
        return seen, stopped

    first, place = part(before, lambda: Notes(Asks(save=True, stop=True)), Progress())
    assert place is not None
    assert (len(first), place.samples) == (2 * before, 2 * before)
    second, end = part(after, Notes, place)
    assert sorted(first + second) == list(range(SAMPLES))
    assert end is None


def test_the_rate_follows_the_schedule_also_after_an_interruption(data: DataSet) -> None:
    config = TrainConfig(num_epochs=3, lr=1.0, warmup_epochs=1, lr_step_epochs=(2,))
    whole, rest = RecordingEngine(losses=[1] * 9), RecordingEngine(losses=[1] * 2)
    train(whole, data, config=config, shard=Shard(), global_batch_size=4, keeping=Notes())
    assert whole.rates == pytest.approx([0.4, 0.8, 1, 0.1])
    begin = Progress(epoch=2, samples=4)
    train(rest, data, config=config, shard=Shard(), global_batch_size=4, keeping=Notes(), begin=begin)
    assert rest.rates == whole.rates[-1:]


def test_late_results_are_counted_once_and_known_where_they_are_said(
    data: DataSet, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        results = train(
            LateEngine(losses=[4, 2, 1] * 2),
            data,
            config=TrainConfig(num_epochs=2, disp_batches=2),
            shard=Shard(),
            global_batch_size=4,
            keeping=Notes(),
        )
    assert [(result.loss, result.train_accuracy) for result in results] == [(0.7, 1), (0.7, 1)]
    said = [message for message in caplog.messages if "Batch" in message]
    assert len(said) == 2
    assert all("Batch [2]" in message and message.endswith("accuracy=1.0000") for message in said)


def test_late_wishes_are_heard_a_step_later_with_all_that_a_checkpoint_counts(data: DataSet) -> None:
    notes = Notes(Asks(save=True), Asks(save=True))
    train(
        LateEngine(losses=[4, 2, 1]),
        data,
        config=TrainConfig(num_epochs=1),
        shard=Shard(),
        global_batch_size=4,
        keeping=notes,
    )
    assert notes.kept == [Progress(samples=8, loss_sum=6, correct=8)]
    notes = Notes(*[Asks(stop=True)] * 3)
    with pytest.raises(StoppedError):
        train(
            LateEngine(losses=[4, 2, 1]),
            data,
            config=TrainConfig(num_epochs=1),
            shard=Shard(),
            global_batch_size=4,
            keeping=notes,
        )
    assert notes.kept == [Progress(samples=8, loss_sum=6, correct=8)]


@pytest.mark.parametrize(
    ("losses", "batch", "updates"),
    [([1, float("nan"), 1], 2, [4, 4]), ([1, 1, float("nan")], 3, [4, 4, 2]), ([float("nan"), 1, 1], 1, [4])],
)
def test_fails_when_a_late_loss_is_not_finite_at_its_own_batch_before_another_update_and_a_checkpoint(
    data: DataSet, losses: list[float], batch: int, updates: list[int]
) -> None:
    engine, notes = LateEngine(losses=losses), Notes()
    with pytest.raises(TrainerError, match=f"loss is nan at epoch 0 batch {batch}, try a lower --lr"):
        train(engine, data, config=TrainConfig(), shard=Shard(), global_batch_size=4, keeping=notes)
    assert engine.updates == updates
    assert not notes.kept


def test_wishes_are_heard_where_every_step_is_waited_for(data: DataSet) -> None:
    keeping = Notes(NOTHING, Asks(save=True, stop=True))
    config = TrainConfig(num_epochs=1, disp_batches=1)
    engine = LateEngine(losses=[4, 4, 2])
    with pytest.raises(StoppedError):
        train(engine, data, config=config, shard=Shard(), global_batch_size=4, keeping=keeping)
    assert [progress.samples for progress in keeping.kept] == [8]
