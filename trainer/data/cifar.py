"""Load CIFAR-10 in its authors' formats: the binary or the python version, a .tar.gz or unpacked.

For the formats, see https://www.cs.toronto.edu/~kriz/cifar.html, "Dataset layout". The python version is a pickle,
which could run any code while it is read; the reader here refuses everything but arrays.
"""

import io
import pickle
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from trainer.config.datasets import DATASETS
from trainer.data.dataset import Dataset, InMemory, make_dataset
from trainer.data.file_io import exists, read
from trainer.errors import TrainerError

NUM_CLASSES: Final = 10
IMAGE_SHAPE: Final = (3, 32, 32)
IMAGE_BYTES: Final = 3 * 32 * 32
TRAIN: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
VALIDATION: Final = ("test_batch",)
VERSIONS: Final = (
    ("cifar-10-batches-bin", ".bin", "cifar-10-binary.tar.gz"),
    ("cifar-10-batches-py", "", "cifar-10-python.tar.gz"),
)
"""Directory, file suffix and archive of each version."""

Read = Callable[[str], tuple[object, bytes]]
"""Function from a file name without suffix to the file's path and content."""


def load_cifar10(directory: Path) -> Dataset:
    """Read 50,000 training and 10,000 validation color images of 32x32.

    Raises TrainerError if a file is damaged or missing; the message tells where to get the dataset.
    """
    for folder, suffix, archive in VERSIONS:
        parse = _parse_binary if suffix else _parse_pickle
        for place in (directory, directory / folder):
            if exists(place / f"{TRAIN[0]}{suffix}"):
                return _load(_reader(place, suffix), parse, source=place)
        if exists(directory / archive):
            return _load(_unpack(directory / archive, folder=folder, suffix=suffix).__getitem__, parse, directory)
    archives = " or ".join(archive for _, _, archive in VERSIONS)
    raise TrainerError(
        f"no {archives}, packed or unpacked, in {directory}: get one from {DATASETS['cifar10'].page} "
        "and pass its directory as --data-dir"
    )


def _load(find: Read, parse: Callable[[object, bytes], InMemory], source: object) -> Dataset:
    train, validation = (_join([parse(*find(name)) for name in names]) for names in (TRAIN, VALIDATION))
    return make_dataset(train, validation, num_classes=NUM_CLASSES, source=source)


def _join(parts: list[InMemory]) -> InMemory:
    return InMemory(
        pixels=np.concatenate([part.pixels for part in parts]), labels=np.concatenate([part.labels for part in parts])
    )


def _reader(directory: Path, suffix: str) -> Read:
    return lambda name: (path := directory / f"{name}{suffix}", read(path))


def _unpack(archive: Path, *, folder: str, suffix: str) -> Mapping[str, tuple[object, bytes]]:
    """Read all files together into memory: an archive has no index, and nothing is unpacked to disk."""
    content = io.BytesIO(read(archive))
    files: dict[str, tuple[object, bytes]] = {}
    try:
        with tarfile.open(fileobj=content, mode="r:") as members:
            for name in (*TRAIN, *VALIDATION):
                path = f"{folder}/{name}{suffix}"
                file = members.extractfile(path)
                files[name] = (f"{archive}:{path}", file.read() if file else b"")
    except (tarfile.TarError, KeyError) as error:
        raise TrainerError(f"{archive} is damaged or not a CIFAR-10 archive: {error.args[0]}") from error
    return files


def _parse_binary(path: object, content: bytes) -> InMemory:
    """Parse records of a label and the red, green and blue values of an image, row by row."""
    if not content or len(content) % (1 + IMAGE_BYTES):
        raise TrainerError(f"{path} is truncated, {len(content)} bytes are no multiple of {1 + IMAGE_BYTES}")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + IMAGE_BYTES)
    return InMemory(pixels=records[:, 1:].reshape(-1, *IMAGE_SHAPE), labels=records[:, 0].astype(np.int64))


def _parse_pickle(path: object, content: bytes) -> InMemory:
    """Parse a dictionary with an array ``data``, one row an image, and a list ``labels``."""
    try:
        values = _Arrays(io.BytesIO(content), encoding="bytes").load()
        data, labels = np.asarray(values[b"data"]), np.asarray(values[b"labels"])
    except _RefusedError as error:
        raise TrainerError(f"{path} contains {error}; only arrays are allowed") from error
    # Damaged bytes can make pickle raise any error.
    except Exception as error:
        raise TrainerError(f"{path} is damaged or truncated, {error!r}".splitlines()[0]) from error
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != IMAGE_BYTES or labels.dtype.kind not in "iu":
        raise TrainerError(f"{path} is damaged, its data have the shape {data.shape} and the type {data.dtype}")
    return InMemory(pixels=data.reshape(-1, *IMAGE_SHAPE), labels=labels.astype(np.int64))


class _RefusedError(Exception):
    """A pickle refers to something other than an array."""


class _Arrays(pickle.Unpickler):
    """Unpickles numpy arrays only; numpy has had several names for the module that creates them."""

    def find_class(self, module: str, name: str) -> object:
        """Return the functions that create an array, and reject all others."""
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return np.empty(0).__reduce__()[0]
        raise _RefusedError(f"{module}.{name}")
