"""Read and write checkpoint files: weights, optimizer state and metadata, in numpy's npz format.

Any backend can read them, and so can ``numpy.load``; unlike a pickle, loading one runs no code.
"""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from trainer.atomic_file import atomic_write
from trainer.backend import TrainingState
from trainer.errors import TrainerError
from trainer.progress import Progress

METADATA: Final = "description"
"""Name of the metadata's array, a JSON text."""
WEIGHT: Final = "weight/"
OPTIMIZER: Final = "optimizer/"
"""Prefixes of the arrays' names, which keep them apart from the metadata's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointMetadata:
    """Run and position of a checkpoint."""

    settings: Mapping[str, object]
    """Settings that must not change when the run resumes; see TrainConfig.settings_fixed_on_resume."""
    progress: Progress
    validation_accuracy: float | None = None
    """Accuracy of the last complete epoch."""
    data_versions: tuple[str, ...] = ()
    """ETags of the data's files in S3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Contents of a checkpoint file."""

    metadata: CheckpointMetadata
    state: TrainingState = field(repr=False)


def final_checkpoint_path(prefix: str, *, epochs: int) -> Path:
    """Return the path of the final checkpoint, in MXNet's naming: PREFIX-0012.npz."""
    return Path(f"{prefix}-{epochs:04d}.npz").expanduser()


def make_checkpoint_directory(directory: Path) -> None:
    """Create the directory, so that a wrong path fails before training starts."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainerError(f"cannot write checkpoints to {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise TrainerError(f"cannot write checkpoints to {directory}: permission denied")


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint atomically: a reader sees the old file or the new one."""
    state = checkpoint.state
    arrays = {WEIGHT + name: value for name, value in state.weights.items()}
    arrays |= {OPTIMIZER + name: value for name, value in state.optimizer.items()}
    metadata = np.array(json.dumps(asdict(checkpoint.metadata)))
    with atomic_write(path, what="checkpoint") as file:
        np.savez(file, allow_pickle=False, **{METADATA: metadata}, **arrays)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; the format's checksums detect a damaged file."""
    with _open_arrays(path) as arrays:
        state = TrainingState(weights=_with_prefix(WEIGHT, arrays), optimizer=_with_prefix(OPTIMIZER, arrays))
        return Checkpoint(metadata=_metadata(arrays), state=state)


def load_metadata(path: Path) -> CheckpointMetadata:
    """Read only the metadata; the arrays are not verified."""
    with _open_arrays(path) as arrays:
        return _metadata(arrays)


@contextmanager
def _open_arrays(path: Path) -> Iterator["np.lib.npyio.NpzFile"]:
    """Open the file; turn every read error, even a late one, into a TrainerError: numpy reads arrays lazily."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
        raise TrainerError(f"cannot read checkpoint {path}: {error}") from error


def _metadata(arrays: "np.lib.npyio.NpzFile") -> CheckpointMetadata:
    values = json.loads(str(arrays[METADATA]))
    progress, versions = Progress(**values["progress"]), tuple(values.get("data_versions", ()))
    return CheckpointMetadata(**{**values, "progress": progress, "data_versions": versions})


def _with_prefix(prefix: str, arrays: "np.lib.npyio.NpzFile") -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}
