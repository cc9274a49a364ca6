"""Engines that return a step's result in the next one, as on GPUs, which are not waited for."""

import logging
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.trainer.recording import Notes, RecordingEngine, numbered_samples
from trainer.config import TrainConfig
from trainer.data import Images, Labels
from trainer.data.samples import DataSet
from trainer.engines import NOTHING, NOTHING_YET, Asks, BatchResult
from trainer.errors import StoppedError, TrainerError
from trainer.loop import train
from trainer.progress import Progress
from trainer.sampling import Shard


class LateEngine(RecordingEngine):
    _late: BatchResult | None = None

    def compute_gradients(self, images: Images, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        before, self._late = self._late, super().compute_gradients(images, labels, asks=asks)
        return replace(before, steps_ago=1) if before else NOTHING_YET

    def settle(self) -> BatchResult | None:
        late, self._late = self._late, None
        return late


@pytest.fixture
def data() -> DataSet:
    return numbered_samples()


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
    config, expected = TrainConfig(num_epochs=1), [Progress(samples=8, loss_sum=6, correct=8)]
    for asks, end in (Asks(save=True), nullcontext()), (Asks(stop=True), pytest.raises(StoppedError)):
        engine, notes = LateEngine(losses=[4, 2, 1]), Notes(asks, asks)
        with end:
            train(engine, data, config=config, shard=Shard(), global_batch_size=4, keeping=notes)
        assert notes.kept == expected


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


@pytest.mark.parametrize("asks", [Asks(save=True), Asks(stop=True)])
def test_a_wish_of_one_step_is_heard_although_the_next_one_has_none(data: DataSet, asks: Asks) -> None:
    notes, config = Notes(asks), TrainConfig(num_epochs=1)
    with pytest.raises(StoppedError) if asks.stop else nullcontext():
        train(LateEngine(losses=[4, 2, 1]), data, config=config, shard=Shard(), global_batch_size=4, keeping=notes)
    assert notes.kept == [Progress(samples=8, loss_sum=6, correct=8)]
