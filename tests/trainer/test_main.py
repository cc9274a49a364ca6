from pathlib import Path
from typing import cast

import pytest

from trainer.config import TrainConfig
from trainer.errors import TrainerError
from trainer.main import run
from trainer.ranks import Ranks
from trainer.signals import Signals


def test_missing_data_are_reported_before_torch_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "trainer.engines.torch", None)
    config = TrainConfig(network="resnet20", dataset="cifar10", data_dir="nowhere")
    with pytest.raises(TrainerError, match="packed or unpacked, in nowhere: get one from https://"):
        run(config, Ranks(), cast(Signals, None))
