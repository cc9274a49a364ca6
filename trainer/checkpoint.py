"""Checkpoints: the weights, the optimizer's state and what they belong to, in numpy's own npz format.

Any engine can read it, and so can ``numpy.load``; unlike a pickle it runs no code when loaded.
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

from trainer.engines import State
from trainer.errors import TrainerError
from trainer.files import replacing
from trainer.progress import Progress

DESCRIPTION: Final = "description"
WEIGHT: Final = "weight/"
OPTIMIZER: Final = "optimizer/"
"""Before each array's name, so that none can be taken for the description."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a checkpoint belongs to."""

    settings: Mapping[str, object]
    """Those that a training cannot change on its way; see TrainConfig.identity."""
    progress: Progress
    validation_accuracy: float | None = None
    """Of the last whole epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """All that a training needs to go on."""

    description: Description
    state: State = field(repr=False)


def checkpoint_path(prefix: str, *, epochs: int) -> Path:
    """Return the path, named as MXNet names its checkpoints: PREFIX-0012.npz."""
    return Path(f"{prefix}-{epochs:04d}.npz").expanduser()


def prepare(directory: Path) -> None:
    """Make the directory, so that a wrong path is an error before the training and not after it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainerError(f"cannot write checkpoints to {directory}, {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise TrainerError(f"cannot write checkpoints to {directory}, permission denied")


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint; a reader sees the old file or the whole new one, whatever happens."""
    state = checkpoint.state
    arrays = {WEIGHT + name: value for name, value in state.weights.items()}
    arrays |= {OPTIMIZER + name: value for name, value in state.optimizer.items()}
    description = np.array(json.dumps(asdict(checkpoint.description)))
    with replacing(path, what="checkpoint") as file:
        np.savez(file, allow_pickle=False, **{DESCRIPTION: description}, **arrays)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back; the format's checksums find what a disk has damaged."""
    with _opened(path) as arrays:
        state = State(weights=_below(WEIGHT, arrays), optimizer=_below(OPTIMIZER, arrays))
        return Checkpoint(description=_description(arrays), state=state)


def describe(path: Path) -> Description:
    """Read only what a checkpoint belongs to; its arrays may still turn out to be damaged."""
    with _opened(path) as arrays:
        return _description(arrays)


@contextmanager
def _opened(path: Path) -> Iterator["np.lib.npyio.NpzFile"]:
    """Numpy reads an array when it is asked for; whatever is wrong with the file is one error."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
        raise TrainerError(f"cannot read checkpoint {path}: {error}") from error


def _description(arrays: "np.lib.npyio.NpzFile") -> Description:
    values = json.loads(str(arrays[DESCRIPTION]))
    return Description(**{**values, "progress": Progress(**values["progress"])})


def _below(prefix: str, arrays: "np.lib.npyio.NpzFile") -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}
