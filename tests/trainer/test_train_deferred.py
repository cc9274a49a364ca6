"""Test the loop with a backend that returns a step's result in the next step, as a GPU does."""

import json
import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer.fake_backend import RecordingBackend, RecordingSaver, make_trainer
from trainer.backend import NO_FLAGS, NO_RESULT_YET, StepFlags, StepResult
from trainer.config.settings import TrainConfig
from trainer.data import Images, Labels
from trainer.errors import StoppedError, TrainerError
from trainer.metrics.metric_writers import open_writers
from trainer.progress import Progress


class DeferredBackend(RecordingBackend):
    _late: StepResult | None = None

    def forward_backward(self, images: Images, labels: Labels, *, flags: StepFlags = NO_FLAGS) -> StepResult:
        before, self._late = self._late, super().forward_backward(images, labels, flags=flags)
        return replace(before, delay_steps=1) if before else NO_RESULT_YET

    def take_deferred(self) -> StepResult | None:
        late, self._late = self._late, None
        return late


def test_deferred_results_are_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        results = make_trainer(
            DeferredBackend(losses=[4, 2, 1] * 2), TrainConfig(last_batch="keep", num_epochs=2, disp_batches=2)
        ).train()
    assert [(result.loss, result.train_accuracy) for result in results] == [(0.7, 1), (0.7, 1)]
    output = [message for message in caplog.messages if "Batch" in message]
    assert len(output) == 2
    assert all("Batch [2]" in message and message.endswith("accuracy=1.0000") for message in output)


def test_reported_loss_is_of_the_reported_step(tmp_path: Path) -> None:
    trainer = make_trainer(DeferredBackend(losses=[4, 2, 1]), TrainConfig(num_epochs=1, disp_batches=2))
    with open_writers(metrics=str(tmp_path / "metrics"), tensorboard=None) as trainer.writers:
        trainer.train()
    step, _ = (tmp_path / "metrics").read_text().splitlines()
    assert json.loads(step)["train/loss"] == 2 / 4


def test_deferred_flags_are_obeyed_one_step_later() -> None:
    config, expected = TrainConfig(last_batch="keep", num_epochs=1), [Progress(samples=8, loss_sum=6, correct=8)]
    for flags, end in (
        (StepFlags(save=True), nullcontext()),
        (StepFlags(stop=True), pytest.raises(StoppedError)),
    ):
        backend, saver = DeferredBackend(losses=[4, 2, 1]), RecordingSaver(flags, flags)
        with end:
            make_trainer(backend, config, checkpoints=saver).train()
        assert saver.saved == expected


@pytest.mark.parametrize(
    ("losses", "batch", "updates"),
    [([1, float("nan"), 1], 2, [4, 4]), ([1, 1, float("nan")], 3, [4, 4, 2]), ([float("nan"), 1, 1], 1, [4])],
)
def test_nan_loss_stops_before_next_update(losses: list[float], batch: int, updates: list[int]) -> None:
    backend, saver = DeferredBackend(losses=losses), RecordingSaver()
    with pytest.raises(TrainerError, match=f"loss is nan at epoch 0 batch {batch}, try a lower --lr"):
        make_trainer(backend, TrainConfig(last_batch="keep"), checkpoints=saver).train()
    assert backend.updates == updates
    assert not saver.saved


def test_flags_are_obeyed_when_every_step_is_awaited() -> None:
    saver = RecordingSaver(NO_FLAGS, StepFlags(save=True, stop=True))
    config = TrainConfig(last_batch="keep", num_epochs=1, disp_batches=1)
    backend = DeferredBackend(losses=[4, 4, 2])
    with pytest.raises(StoppedError):
        make_trainer(backend, config, checkpoints=saver).train()
    assert [progress.samples for progress in saver.saved] == [8]


@pytest.mark.parametrize("flags", [StepFlags(save=True), StepFlags(stop=True)])
def test_flags_of_one_step_survive_a_step_without_flags(flags: StepFlags) -> None:
    saver, config = RecordingSaver(flags), TrainConfig(last_batch="keep", num_epochs=1)
    with pytest.raises(StoppedError) if flags.stop else nullcontext():
        make_trainer(DeferredBackend(losses=[4, 2, 1]), config, checkpoints=saver).train()
    assert saver.saved == [Progress(samples=8, loss_sum=6, correct=8)]
