from pathlib import Path

import numpy as np
import pytest

from trainer import checkpoint
from trainer.checkpoint import Description
from trainer.errors import TrainerError

DESCRIPTION = Description(network="lenet", epochs=2, validation_accuracy=0.5)
WEIGHTS = {"0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "0.bias": np.zeros(2, np.float32)}


def test_reads_back_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "net-0002.npz"
    checkpoint.save(path, weights=WEIGHTS, description=DESCRIPTION)
    weights, description = checkpoint.load(path)
    assert description == DESCRIPTION
    assert list(weights) == list(WEIGHTS)
    assert all(np.array_equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_has_the_epochs_as_mxnet_writes_them() -> None:
    assert checkpoint.checkpoint_path("out/lenet", epochs=15) == Path("out/lenet-0015.npz")


def test_fails_when_the_disk_is_full_and_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net-0002.npz"
    checkpoint.save(path, weights=WEIGHTS, description=DESCRIPTION)
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(TrainerError, match="No space left on device"):
        checkpoint.save(path, weights={}, description=DESCRIPTION)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_fails_when_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "net-0002.npz"
    checkpoint.save(path, weights=WEIGHTS, description=DESCRIPTION)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TrainerError, match=f"cannot read checkpoint {path}"):
        checkpoint.load(path)


def test_fails_before_the_training_when_the_directory_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match=r"cannot write checkpoints to .*/file, "):
        checkpoint.prepare(tmp_path / "file" / "net-0001.npz")
