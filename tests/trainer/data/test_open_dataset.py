"""Test that a dataset too large for the memory is reported in one line."""

import re

import numpy as np
import pytest

from trainer.config.settings import TrainConfig
from trainer.data.dataset import Dataset
from trainer.data.open_dataset import open_data
from trainer.errors import TrainerError


def test_out_of_memory_is_one_line_with_the_required_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: tuple[int, int, int]) -> Dataset:
        np.empty((2**20, 2**40), np.uint8)
        raise AssertionError("no machine has an exbibyte")

    monkeypatch.setattr("trainer.data.open_dataset.load_digits", load)
    message = "digits with images of 1,28,28 does not fit into memory, Unable to allocate 1.00 EiB for an array"
    with pytest.raises(TrainerError, match=f"^{re.escape(message)}") as caught:
        open_data(TrainConfig())
    assert "\n" not in str(caught.value)
