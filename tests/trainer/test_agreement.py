from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from trainer.agreement import check_agreement
from trainer.data.samples import DataSet, InMemory, in_memory
from trainer.errors import TrainerError
from trainer.sampling import Shard


def data(*labels: int) -> DataSet:
    train, held_out = (
        InMemory(pixels=np.zeros((len(own), 1, 2, 2), np.uint8), labels=np.array(own)) for own in (labels, (0, 1))
    )
    return in_memory(train, held_out, classes=10, source="test")


class Noting:
    """Notes what a rank would send, or adds up what all have sent."""

    def __init__(self, *sent: list[float]) -> None:
        self.sent = list(sent)

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        self.sent.append(list(values))
        return [sum(column) for column in zip(*self.sent, strict=True)]


def sent_by(own: DataSet) -> list[float]:
    alone = Noting()
    check_agreement(alone, own, shard=Shard(), source="folder")
    return alone.sent[0]


@pytest.mark.parametrize("ranks", [1, 3, 500])
def test_ranks_with_the_same_data_agree(ranks: int) -> None:
    own = data(*range(10))
    others = [sent_by(own)] * (ranks - 1)
    check_agreement(Noting(*others), own, shard=Shard(count=ranks), source="folder")


@pytest.mark.parametrize("other", [(1, 2), (1, 2, 3, 4), (1, 2, 4)])
@pytest.mark.parametrize("ranks", [2, 500])
def test_fails_when_one_of_them_has_other_samples(other: tuple[int, ...], ranks: int) -> None:
    same = [sent_by(data(1, 2, 3))] * (ranks - 2)
    engine = Noting(*same, sent_by(data(*other)))
    with pytest.raises(
        TrainerError,
        match="folder is not the same on all ranks, here it has 3 training and 2 validation samples of 10 classes",
    ):
        check_agreement(engine, data(1, 2, 3), shard=Shard(count=ranks), source="folder")


def test_fails_when_one_of_them_calls_a_class_by_another_name() -> None:
    own = data(0, 1, 0)
    engine = Noting(sent_by(replace(own, names=("cat", "dog"))))
    with pytest.raises(TrainerError, match="folder is not the same on all ranks"):
        check_agreement(engine, replace(own, names=("cat", "fox")), shard=Shard(count=2), source="folder")
