"""Test that ranks with different data are reported."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from trainer.data.check_same_data import check_same_data
from trainer.data.dataset import Dataset, InMemory, make_dataset
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.errors import TrainerError


def make_labeled(*labels: int) -> Dataset:
    train, validation = (
        InMemory(pixels=np.zeros((len(own), 1, 2, 2), np.uint8), labels=np.array(own)) for own in (labels, (0, 1))
    )
    return make_dataset(train, validation, num_classes=10, source="test")


class OtherRanks:
    """Backend of rank 0, whose other ranks have these datasets."""

    def __init__(self, *datasets: Dataset) -> None:
        self._datasets = datasets

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        width = len(values) // (1 + len(self._datasets))
        table = list(values)
        for rank, data in enumerate(self._datasets, start=1):
            table[width * rank : width * (rank + 1)] = _checksums(data)
        return table


class _Recorder:
    """Backend of a single rank that records its row."""

    row: Sequence[float] = ()

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        self.row = values
        return list(values)


def _checksums(data: Dataset) -> Sequence[float]:
    recorder = _Recorder()
    check_same_data(recorder, data, dp=DataParallelGroup(), source="folder")
    return recorder.row


@pytest.mark.parametrize("ranks", [1, 3, 500])
def test_ranks_with_the_same_data_pass(ranks: int) -> None:
    own = make_labeled(*range(10))
    others = OtherRanks(*[own] * (ranks - 1))
    check_same_data(others, own, dp=DataParallelGroup(world_size=ranks), source="folder")


@pytest.mark.parametrize("other", [(1, 2), (1, 2, 3, 4), (1, 2, 4)])
@pytest.mark.parametrize("ranks", [2, 500])
def test_other_samples_on_one_rank_are_reported(other: tuple[int, ...], ranks: int) -> None:
    own = make_labeled(1, 2, 3)
    others = OtherRanks(*[own] * (ranks - 2), make_labeled(*other))
    with pytest.raises(
        TrainerError,
        match="folder is not the same on all ranks, here it has 3 training and 2 validation samples of 10 classes",
    ):
        check_same_data(others, own, dp=DataParallelGroup(world_size=ranks), source="folder")


def test_other_class_name_on_one_rank_is_reported() -> None:
    own = make_labeled(0, 1, 0)
    others = OtherRanks(replace(own, class_names=("cat", "dog")))
    with pytest.raises(TrainerError, match="folder is not the same on all ranks"):
        check_same_data(
            others, replace(own, class_names=("cat", "fox")), dp=DataParallelGroup(world_size=2), source="folder"
        )


def test_other_file_in_s3_on_one_rank_is_reported() -> None:
    own = replace(make_labeled(0, 1, 0), versions=('"1"', '"2"'))
    with pytest.raises(TrainerError, match="recordio is not the same on all ranks"):
        check_same_data(
            OtherRanks(replace(own, versions=('"1"', '"3"'))),
            own,
            dp=DataParallelGroup(world_size=2),
            source="recordio",
        )
