from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.trainer.fake_backend import SAMPLES, RecordingBackend, RecordingPolicy, make_numbered_samples
from trainer.backend import NO_FLAGS, StopSaveFlags
from trainer.config.settings import TrainConfig
from trainer.data.samples import DataSet
from trainer.data.sampling import Shard
from trainer.errors import StoppedError, TrainerError
from trainer.progress import Progress
from trainer.train import train


@pytest.fixture
def data() -> DataSet:
    return make_numbered_samples()


def test_trains_on_every_sample_once_an_epoch_and_divides_by_the_global_batch(data: DataSet) -> None:
    backend = RecordingBackend(losses=[4, 4, 2])
    config = TrainConfig(last_batch="keep", num_epochs=1)
    times = iter([0.0, 0.0, 2.0])
    [result] = train(
        backend,
        data,
        config=config,
        shard=Shard(),
        global_batch_size=4,
        policy=RecordingPolicy(),
        clock=lambda: next(times),
    )
    assert sorted(value for batch in backend.seen for value in batch) == list(range(SAMPLES))
    assert backend.updates == [4, 4, 2]
    assert result.loss == pytest.approx(1)
    assert result.train_accuracy == result.validation_accuracy == 1
    assert result.speed == pytest.approx(5)


@pytest.mark.parametrize(
    ("last_batch", "begin", "updates"), [("drop", 0, [4, 4]), ("keep", 0, [4, 4, 2]), ("drop", 8, []), ("drop", 5, [4])]
)
def test_the_last_batch_is_left_out_where_it_is_smaller(
    data: DataSet, last_batch: str, begin: int, updates: list[int]
) -> None:
    backend = RecordingBackend(losses=[4.0] * len(updates))
    progress = Progress(samples=begin, loss_sum=float(begin))
    [result] = train(
        backend,
        data,
        config=TrainConfig(num_epochs=1, last_batch=last_batch),
        shard=Shard(),
        global_batch_size=4,
        policy=RecordingPolicy(),
        begin=progress,
    )
    assert backend.updates == updates
    assert result.loss == pytest.approx((begin + 4 * len(updates)) / (begin + sum(updates)))


def test_validation_takes_as_many_images_at_once_as_the_training(data: DataSet) -> None:
    backend = RecordingBackend(losses=[4] * 5)
    train(
        backend,
        data,
        config=TrainConfig(num_epochs=1),
        shard=Shard(index=0, count=2),
        global_batch_size=4,
        policy=RecordingPolicy(),
    )
    assert backend.validated == [2, 2, 1]


def test_utilisation_is_of_all_ranks_devices(data: DataSet) -> None:
    backend = RecordingBackend(losses=[4, 4, 2])
    backend.peak_speed = 10.0
    times = iter([0.0, 0.0, 2.0])
    [result] = train(
        backend,
        data,
        config=TrainConfig(last_batch="keep", num_epochs=1),
        shard=Shard(index=0, count=2),
        global_batch_size=4,
        policy=RecordingPolicy(),
        clock=lambda: next(times),
    )
    # 10 samples in 2 seconds, where two devices could have done 40.
    assert result.utilisation == pytest.approx(0.25)


def test_every_rank_makes_equally_many_steps_also_without_samples(data: DataSet) -> None:
    steps = []
    for index in range(3):
        backend = RecordingBackend(losses=[0] * 3)
        train(
            backend,
            data,
            config=TrainConfig(last_batch="keep", num_epochs=1),
            shard=Shard(index=index, count=3),
            global_batch_size=4,
            policy=RecordingPolicy(),
        )
        steps.append([len(batch) for batch in backend.seen])
        assert backend.updates == [4, 4, 2]
    assert steps == [[1, 1, 0], [1, 1, 1], [2, 2, 1]]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_fails_when_the_loss_is_not_finite_before_the_weights_change(data: DataSet, loss: float) -> None:
    backend = RecordingBackend(losses=[1, loss])
    with pytest.raises(TrainerError, match=f"loss is {loss} at epoch 0 batch 2, try a lower --lr"):
        train(backend, data, config=TrainConfig(), shard=Shard(), global_batch_size=4, policy=RecordingPolicy())
    assert backend.updates == [4]


def test_a_checkpoint_is_kept_after_each_epoch_but_the_last_and_when_a_rank_asks(data: DataSet) -> None:
    policy = RecordingPolicy(NO_FLAGS, StopSaveFlags(save=True))
    train(
        RecordingBackend(losses=[4, 2, 1] * 3),
        data,
        config=TrainConfig(last_batch="keep", num_epochs=3),
        shard=Shard(),
        global_batch_size=4,
        policy=policy,
        begin=Progress(started=7),
    )
    assert policy.saved == [
        Progress(started=7, epoch=0, samples=8, loss_sum=6, correct=8),
        Progress(started=7, epoch=1),
        Progress(started=7, epoch=2),
    ]


def test_what_was_stopped_goes_on_with_the_next_batch_and_counts_all_once(data: DataSet) -> None:
    config = TrainConfig(last_batch="keep", num_epochs=2)
    first, policy = RecordingBackend(losses=[4] * 4), RecordingPolicy(*[NO_FLAGS] * 3, StopSaveFlags(stop=True))
    with pytest.raises(StoppedError):
        train(first, data, config=config, shard=Shard(), global_batch_size=4, policy=policy)
    second, begin = RecordingBackend(losses=[3, 3]), policy.saved[-1]
    assert begin == Progress(epoch=1, samples=4, loss_sum=4, correct=4)
    [result] = train(
        second, data, config=config, shard=Shard(), global_batch_size=4, policy=RecordingPolicy(), begin=begin
    )
    whole = RecordingBackend(losses=[1] * 6)
    train(whole, data, config=config, shard=Shard(), global_batch_size=4, policy=RecordingPolicy())
    assert first.seen + second.seen == whole.seen
    assert (result.loss, result.train_accuracy, result.samples) == (1, 1, 6)


def test_what_all_ranks_recognised_before_an_interruption_counts_on_one_of_them(data: DataSet) -> None:
    def counted(index: int) -> tuple[int, int]:
        """What a rank brings into the accuracy of the epoch, and into that of a checkpoint in its last step."""
        policy = RecordingPolicy(NO_FLAGS, StopSaveFlags(save=True))
        [result] = train(
            RecordingBackend(losses=[0] * 2),
            data,
            config=TrainConfig(last_batch="keep", num_epochs=1),
            shard=Shard(index=index, count=2),
            global_batch_size=4,
            policy=policy,
            begin=Progress(samples=4, correct=3),
        )
        return round(result.train_accuracy * SAMPLES), policy.saved[-1].correct

    # Of the six samples that are left, three are each rank's.
    assert [counted(index) for index in range(2)] == [(3 + 3, 3 + 3), (3, 3)]


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_on_another_number_of_ranks_each_sample_of_the_epoch_still_counts_once(
    data: DataSet, before: int, after: int
) -> None:
    def part(
        count: int, make_policy: Callable[[], RecordingPolicy], begin: Progress
    ) -> tuple[list[float], Progress | None]:
        """What ranks of two samples each see in what is left of the epoch, and the place where they were stopped."""
        seen, stopped = [], None
        for index in range(count):
            backend, policy = RecordingBackend(losses=[0] * SAMPLES), make_policy()
            with suppress(StoppedError):
                train(
                    backend,
                    data,
                    config=TrainConfig(last_batch="keep", num_epochs=1),
                    shard=Shard(index=index, count=count),
                    global_batch_size=2 * count,
                    policy=policy,
                    begin=begin,
                )
            seen += [value for batch in backend.seen for value in batch]
            stopped = policy.saved[-1] if policy.saved else None
        return seen, stopped

    first, place = part(before, lambda: RecordingPolicy(StopSaveFlags(save=True, stop=True)), Progress())
    assert place is not None
    assert (len(first), place.samples) == (2 * before, 2 * before)
    second, end = part(after, RecordingPolicy, place)
    assert sorted(first + second) == list(range(SAMPLES))
    assert end is None


def test_the_rate_follows_the_schedule_also_after_an_interruption(data: DataSet) -> None:
    config = TrainConfig(last_batch="keep", num_epochs=3, lr=1.0, warmup_epochs=1, lr_step_epochs=(2,))
    whole, rest = RecordingBackend(losses=[1] * 9), RecordingBackend(losses=[1] * 2)
    train(whole, data, config=config, shard=Shard(), global_batch_size=4, policy=RecordingPolicy())
    assert whole.rates == pytest.approx([0.4, 0.8, 1, 0.1])
    begin = Progress(epoch=2, samples=4)
    train(rest, data, config=config, shard=Shard(), global_batch_size=4, policy=RecordingPolicy(), begin=begin)
    assert rest.rates == whole.rates[-1:]
