"""Test reading and writing a checkpoint file, also damaged or on a full disk."""

from pathlib import Path

import numpy as np
import pytest

from trainer.backend import TrainingState
from trainer.checkpoint.format import (
    Checkpoint,
    CheckpointMetadata,
    final_checkpoint_path,
    load_checkpoint,
    make_checkpoint_directory,
    save_checkpoint,
)
from trainer.errors import TrainerError
from trainer.progress import Progress

METADATA = CheckpointMetadata(
    settings={"network": "lenet", "lr": None},
    progress=Progress(run_started_at=1.5, epoch=2, samples=64, loss_sum=0.1, correct=3),
    validation_accuracy=0.5,
)
WEIGHTS = {"0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "0.bias": np.zeros(2, np.float32)}
CHECKPOINT = Checkpoint(
    metadata=METADATA, state=TrainingState(weights=WEIGHTS, optimizer={"momentum": np.ones(8, np.float32)})
)


def test_saved_checkpoint_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "net-0002.npz"
    save_checkpoint(path, CHECKPOINT)
    found = load_checkpoint(path)
    assert found.metadata == METADATA
    assert list(found.state.weights) == list(WEIGHTS)
    assert all(np.array_equal(found.state.weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert found.state.optimizer["momentum"].tolist() == [1] * 8
    assert list(tmp_path.iterdir()) == [path]


def test_final_checkpoint_is_named_as_mxnet_does() -> None:
    assert final_checkpoint_path("out/lenet", epochs=15) == Path("out/lenet-0015.npz")


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net-0002.npz"
    save_checkpoint(path, CHECKPOINT)
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(TrainerError, match="No space left on device"):
        save_checkpoint(path, Checkpoint(metadata=METADATA, state=TrainingState(weights={})))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_save_syncs_the_content_and_then_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "net-0002.npz", []

    def note(descriptor: int) -> None:
        on_disk = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(("directory" if on_disk == tmp_path else on_disk.suffix, path.exists()))

    monkeypatch.setattr("os.fsync", note)
    save_checkpoint(path, CHECKPOINT)
    # The content is synced first, under another name, and then the directory with the final name.
    assert synced == [(".tmp", False), ("directory", True)]


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_damaged_checkpoint_is_reported(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "net-0002.npz"
    save_checkpoint(path, CHECKPOINT)
    content = path.read_bytes()
    place = content.index(WEIGHTS["0.weight"].tobytes())
    path.write_bytes(content[:-30] if damage == "cut off" else content[:place] + b"?" + content[place + 1 :])
    with pytest.raises(TrainerError, match=f"cannot read checkpoint {path}"):
        load_checkpoint(path)


def test_unusable_checkpoint_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match=r"cannot write checkpoints to .*/file/below: "):
        make_checkpoint_directory(tmp_path / "file" / "below")
