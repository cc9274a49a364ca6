"""Checkpoints: the weights and what they belong to, in numpy's own npz format.

Any engine can read it, and so can ``numpy.load``; unlike a pickle it runs no code when loaded.
"""

import json
import os
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trainer.engines import Weights
from trainer.errors import TrainerError

DESCRIPTION: Final = "description"
WEIGHT: Final = "weight/"
"""Before each weight's name, so that none can be taken for the description."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a checkpoint's weights belong to."""

    network: str
    epochs: int
    """Epochs trained so far."""
    validation_accuracy: float


def checkpoint_path(prefix: str, *, epochs: int) -> Path:
    """Return the path, named as MXNet names its checkpoints: PREFIX-0012.npz."""
    return Path(f"{prefix}-{epochs:04d}.npz").expanduser()


def prepare(path: Path) -> None:
    """Make the directory, so that a wrong path is an error before the training and not after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainerError(f"cannot write checkpoints to {path.parent}, {error.strerror}") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise TrainerError(f"cannot write checkpoints to {path.parent}, permission denied")


def save(path: Path, *, weights: Weights, description: Description) -> None:
    """Write the checkpoint; a reader sees the old file or the whole new one, whatever happens."""
    arrays = {WEIGHT + name: value for name, value in weights.items()}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **{DESCRIPTION: np.array(json.dumps(asdict(description)))}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrainerError(f"cannot write checkpoint {path}, {error.strerror}") from error


def load(path: Path) -> tuple[Weights, Description]:
    """Read a checkpoint back."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            description = Description(**json.loads(str(arrays[DESCRIPTION])))
            names = [name for name in arrays.files if name.startswith(WEIGHT)]
            return {name.removeprefix(WEIGHT): arrays[name] for name in names}, description
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise TrainerError(f"cannot read checkpoint {path}: {error}") from error
