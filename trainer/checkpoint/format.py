"""Read and write checkpoint files: weights, optimizer state and a description, in numpy's npz format.

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

DESCRIPTION: Final = "description"
WEIGHT: Final = "weight/"
OPTIMIZER: Final = "optimizer/"
"""Prefixes of the arrays' names, which keep them apart from the description."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """Run and position of a checkpoint."""

    settings: Mapping[str, object]
    """Settings that must not change when the run resumes; see TrainConfig.identity."""
    progress: Progress
    validation_accuracy: float | None = None
    """Accuracy of the last complete epoch."""
    data_versions: tuple[str, ...] = ()
    """ETags of the data's files in S3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Contents of a checkpoint file."""

    description: Description
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
    description = np.array(json.dumps(asdict(checkpoint.description)))
    with atomic_write(path, what="checkpoint") as file:
        np.savez(file, allow_pickle=False, **{DESCRIPTION: description}, **arrays)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; the format's checksums detect a damaged file."""
    with _open_arrays(path) as arrays:
        state = TrainingState(weights=_with_prefix(WEIGHT, arrays), optimizer=_with_prefix(OPTIMIZER, arrays))
        return Checkpoint(description=_description(arrays), state=state)


def load_description(path: Path) -> Description:
    """Read only the description; it does not verify the arrays."""
    with _open_arrays(path) as arrays:
        return _description(arrays)


@contextmanager
def _open_arrays(path: Path) -> Iterator["np.lib.npyio.NpzFile"]:
    """Open the file; turn every read error, even a late one, into a TrainerError: numpy reads arrays lazily."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
        raise TrainerError(f"cannot read checkpoint {path}: {error}") from error


def _description(arrays: "np.lib.npyio.NpzFile") -> Description:
    values = json.loads(str(arrays[DESCRIPTION]))
    progress, versions = Progress(**values["progress"]), tuple(values.get("data_versions", ()))
    return Description(**{**values, "progress": progress, "data_versions": versions})


def _with_prefix(prefix: str, arrays: "np.lib.npyio.NpzFile") -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}
