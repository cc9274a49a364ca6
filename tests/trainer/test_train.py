"""Test the training loop: which samples, updates, results and checkpoints an epoch has."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.trainer.fake_backend import SAMPLES, STEP_S, RecordingBackend, RecordingSaver, make_trainer
from trainer.backend import NO_FLAGS, StepFlags
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.errors import StoppedError, TrainerError
from trainer.progress import Progress


def test_epoch_trains_on_every_sample_once() -> None:
    backend = RecordingBackend(losses=[4, 4, 2])
    config = TrainConfig(last_batch="keep", num_epochs=1)
    [result] = make_trainer(backend, config, clock=backend.clock).train()
    assert sorted(value for batch in backend.seen for value in batch) == list(range(SAMPLES))
    assert backend.updates == [4, 4, 2]
    assert result.loss == pytest.approx(1)
    assert result.train_accuracy == result.validation_accuracy == 1
    assert result.speed == pytest.approx(SAMPLES / (3 * STEP_S))


@pytest.mark.parametrize(
    ("last_batch", "begin", "updates"), [("drop", 0, [4, 4]), ("keep", 0, [4, 4, 2]), ("drop", 8, []), ("drop", 5, [4])]
)
def test_last_batch_option_decides_on_a_smaller_last_batch(last_batch: str, begin: int, updates: list[int]) -> None:
    backend = RecordingBackend(losses=[4.0] * len(updates))
    progress = Progress(samples=begin, loss_sum=float(begin))
    [result] = make_trainer(backend, TrainConfig(num_epochs=1, last_batch=last_batch)).train(progress)
    assert backend.updates == updates
    assert result.loss == pytest.approx((begin + 4 * len(updates)) / (begin + sum(updates)))


def test_validation_batches_are_as_large_as_training_batches() -> None:
    backend = RecordingBackend(losses=[4] * 5)
    make_trainer(backend, TrainConfig(num_epochs=1), dp=DataParallelGroup(rank=0, world_size=2)).train()
    assert backend.validated == [2, 2, 1]


def test_utilization_counts_the_devices_of_all_ranks() -> None:
    backend = RecordingBackend(losses=[4, 4, 2])
    backend.peak_samples_per_s = 10.0
    [result] = make_trainer(
        backend,
        TrainConfig(last_batch="keep", num_epochs=1),
        dp=DataParallelGroup(rank=0, world_size=2),
        clock=backend.clock,
    ).train()
    # 10 samples in 1.5 seconds, where two devices could have done 30.
    assert result.mfu == pytest.approx(1 / 3)


def test_ranks_without_samples_make_every_step() -> None:
    steps = []
    for rank in range(3):
        backend = RecordingBackend(losses=[0] * 3)
        make_trainer(
            backend, TrainConfig(last_batch="keep", num_epochs=1), dp=DataParallelGroup(rank=rank, world_size=3)
        ).train()
        steps.append([len(batch) for batch in backend.seen])
        assert backend.updates == [4, 4, 2]
    assert steps == [[1, 1, 0], [1, 1, 1], [2, 2, 1]]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_non_finite_loss_stops_before_the_update(loss: float) -> None:
    backend = RecordingBackend(losses=[1, loss])
    with pytest.raises(TrainerError, match=f"loss is {loss} at epoch 0 batch 2, try a lower --lr"):
        make_trainer(backend, TrainConfig()).train()
    assert backend.updates == [4]


def test_checkpoint_is_saved_after_each_epoch_but_the_last_and_on_request() -> None:
    saver = RecordingSaver(NO_FLAGS, StepFlags(save=True))
    make_trainer(
        RecordingBackend(losses=[4, 2, 1] * 3), TrainConfig(last_batch="keep", num_epochs=3), checkpoints=saver
    ).train(Progress(run_started_at=7))
    assert saver.saved == [
        Progress(run_started_at=7, epoch=0, samples=8, loss_sum=6, correct=8),
        Progress(run_started_at=7, epoch=1),
        Progress(run_started_at=7, epoch=2),
    ]


def test_resumed_epoch_continues_with_the_next_batch() -> None:
    config = TrainConfig(last_batch="keep", num_epochs=2)
    first, saver = RecordingBackend(losses=[4] * 4), RecordingSaver(*[NO_FLAGS] * 3, StepFlags(stop=True))
    with pytest.raises(StoppedError):
        make_trainer(first, config, checkpoints=saver).train()
    second, begin = RecordingBackend(losses=[3, 3]), saver.saved[-1]
    assert begin == Progress(epoch=1, samples=4, loss_sum=4, correct=4)
    [result] = make_trainer(second, config).train(begin)
    whole = RecordingBackend(losses=[1] * 6)
    make_trainer(whole, config).train()
    assert first.seen + second.seen == whole.seen
    assert (result.loss, result.train_accuracy, result.samples) == (1, 1, 6)


def test_correct_count_before_an_interruption_is_added_once() -> None:
    def correct_counts(rank: int) -> tuple[int, int]:
        """Return the correct count of a rank at the end of the epoch, and in a checkpoint of its last step."""
        saver = RecordingSaver(NO_FLAGS, StepFlags(save=True))
        [result] = make_trainer(
            RecordingBackend(losses=[0] * 2),
            TrainConfig(last_batch="keep", num_epochs=1),
            dp=DataParallelGroup(rank=rank, world_size=2),
            checkpoints=saver,
        ).train(Progress(samples=4, correct=3))
        return round(result.train_accuracy * SAMPLES), saver.saved[-1].correct

    # Each rank has three of the six remaining samples.
    assert [correct_counts(rank) for rank in range(2)] == [(3 + 3, 3 + 3), (3, 3)]


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_resume_on_other_rank_count_uses_each_sample_once(before: int, after: int) -> None:
    def train_rest(
        count: int, make_saver: Callable[[], RecordingSaver], begin: Progress
    ) -> tuple[list[float], Progress | None]:
        """Return the samples that ranks of two samples each see in the rest of the epoch, and where they stop."""
        seen, stopped = [], None
        for rank in range(count):
            backend, saver = RecordingBackend(losses=[0] * SAMPLES), make_saver()
            with suppress(StoppedError):
                make_trainer(
                    backend,
                    TrainConfig(last_batch="keep", num_epochs=1),
                    dp=DataParallelGroup(rank=rank, world_size=count),
                    global_batch_size=2 * count,
                    checkpoints=saver,
                ).train(begin)
            seen += [value for batch in backend.seen for value in batch]
            stopped = saver.saved[-1] if saver.saved else None
        return seen, stopped

    first, place = train_rest(before, lambda: RecordingSaver(StepFlags(save=True, stop=True)), Progress())
    assert place is not None
    assert (len(first), place.samples) == (2 * before, 2 * before)
    second, end = train_rest(after, RecordingSaver, place)
    assert sorted(first + second) == list(range(SAMPLES))
    assert end is None


def test_learning_rate_follows_the_schedule_after_a_resume() -> None:
    config = TrainConfig(last_batch="keep", num_epochs=3, lr=1.0, warmup_epochs=1, lr_step_epochs=(2,))
    whole, rest = RecordingBackend(losses=[1] * 9), RecordingBackend(losses=[1] * 2)
    make_trainer(whole, config).train()
    assert whole.rates == pytest.approx([0.4, 0.8, 1, 0.1])
    begin = Progress(epoch=2, samples=4)
    make_trainer(rest, config).train(begin)
    assert rest.rates == whole.rates[-1:]
