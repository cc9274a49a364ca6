from collections.abc import Sequence

import numpy as np
import pytest

from trainer.config import TrainConfig
from trainer.data import DataSet, Images, Labels, Samples
from trainer.engines import BatchResult, Weights
from trainer.errors import TrainerError
from trainer.loop import train
from trainer.sampling import Shard

SAMPLES = 10


class RecordingEngine:
    """Knows the label of every image, and notes what the loop asks of it."""

    def __init__(self, *, losses: Sequence[float]) -> None:
        self._losses = iter(losses)
        self.seen: list[list[float]] = []
        self.updates: list[int] = []

    def compute_gradients(self, images: Images, labels: Labels) -> BatchResult:
        self.seen.append(images.ravel().tolist())
        return BatchResult(loss_sum=next(self._losses), correct=len(labels))

    def update(self, *, samples: int) -> None:
        self.updates.append(samples)

    def count_correct(self, images: Images, labels: Labels) -> int:
        return len(labels)

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def weights(self) -> Weights:
        return {"a": np.zeros(1)}

    def close(self) -> None:
        pass


@pytest.fixture
def data() -> DataSet:
    samples = Samples(
        images=np.arange(SAMPLES, dtype=np.float32).reshape(-1, 1, 1, 1), labels=np.zeros(SAMPLES, np.int64)
    )
    return DataSet(train=samples, held_out=samples)


def test_trains_on_every_sample_once_an_epoch_and_divides_by_the_global_batch(data: DataSet) -> None:
    engine = RecordingEngine(losses=[4, 4, 2])
    config = TrainConfig(num_epochs=1)
    times = iter([0.0, 0.0, 2.0])
    [result] = train(engine, data, config=config, shard=Shard(), global_batch_size=4, clock=lambda: next(times))
    assert sorted(value for batch in engine.seen for value in batch) == list(range(SAMPLES))
    assert engine.updates == [4, 4, 2]
    assert result.loss == pytest.approx(1)
    assert result.train_accuracy == result.validation_accuracy == 1
    assert result.speed == pytest.approx(5)


def test_every_rank_makes_equally_many_steps_also_without_samples(data: DataSet) -> None:
    steps = []
    for index in range(3):
        engine = RecordingEngine(losses=[0] * 3)
        train(engine, data, config=TrainConfig(num_epochs=1), shard=Shard(index=index, count=3), global_batch_size=4)
        steps.append([len(batch) for batch in engine.seen])
        assert engine.updates == [4, 4, 2]
    assert steps == [[1, 1, 0], [1, 1, 1], [2, 2, 1]]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_fails_when_the_loss_is_not_finite_before_the_weights_change(data: DataSet, loss: float) -> None:
    engine = RecordingEngine(losses=[1, loss])
    with pytest.raises(TrainerError, match=f"loss is {loss} at epoch 0 batch 2, try a lower --lr"):
        train(engine, data, config=TrainConfig(), shard=Shard(), global_batch_size=4)
    assert engine.updates == [4]
