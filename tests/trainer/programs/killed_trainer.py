"""Run the trainer, and end a rank by kill -9 in the middle of its work.

``KILLED`` tells where, as ``RANK PLACE NUMBER BYTES``: in the NUMBERth step, write or copy of that rank.

step    gradients are added up, weights not yet changed
write   after BYTES of a checkpoint's file
copy    the copy is in S3, the one before it still there too; that of the best does not count
mark    before the completion marker
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch

from trainer.atomic_file import atomic_write
from trainer.checkpoint.completion_marker import CompletionMarker, write_marker
from trainer.s3 import NO_METADATA, S3Folder
from trainer.step import TorchBackend
from trainer.train import main_and_exit

RANK, PLACE, NUMBER, BYTES = os.environ["KILLED"].split()


class Passes:
    """Counts how often this rank has come to a place."""

    def __init__(self, place: str) -> None:
        self._numbers = count(1)
        self._watched = os.environ["RANK"] == RANK and place == PLACE

    def is_the_one(self) -> bool:
        return self._watched and next(self._numbers) == int(NUMBER)


steps, writes, copies, marks = Passes("step"), Passes("write"), Passes("copy"), Passes("mark")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KilledBackend(TorchBackend):
    def update(self, *, samples: int) -> None:
        if steps.is_the_one():
            die()
        super().update(samples=samples)


class KilledFile:
    """Writes BYTES bytes, and dies."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = int(BYTES)

    def write(self, data: bytes) -> int:
        taken = memoryview(data).cast("B")[: self._left]
        self._file.write(taken)
        self._left -= len(taken)
        if not self._left:
            self._file.flush()
            die()
        return len(taken)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@contextmanager
def killed_replacing(path: Path, *, what: str) -> Iterator[object]:
    with atomic_write(path, what=what) as file:
        yield KilledFile(file) if writes.is_the_one() else file


class KilledFolder(S3Folder):
    def store(self, path: Path, name: str, *, metadata: Mapping[str, str] = NO_METADATA) -> None:
        super().store(path, name, metadata=metadata)
        if "-resume-" in name and copies.is_the_one():
            die()


def killed_mark(path: Path, mark: CompletionMarker) -> None:
    if marks.is_the_one():
        die()
    write_marker(path, mark)


if __name__ == "__main__":
    with (
        patch("trainer.torch.connect.TorchBackend", KilledBackend),
        patch("trainer.checkpoint.format.atomic_write", killed_replacing),
        patch("trainer.checkpoint.store.S3Folder", KilledFolder),
        patch("trainer.checkpoint.store.write_marker", killed_mark),
    ):
        main_and_exit()
