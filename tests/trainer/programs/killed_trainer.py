"""Run the trainer, and kill a rank with kill -9 in the middle of its work.

The environment says where: rank ``KILL_RANK`` dies when it passes the place ``KILL_AT`` for the ``KILL_COUNT``th time.

    step:  after the gradients are summed, before the weights change
    write: after ``KILL_BYTES`` of a checkpoint's file
    copy:  after an upload to S3, before the previous copy is deleted; uploads of the best checkpoint do not count
    mark:  before the completion marker is written
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
from trainer.torch_backend.backend import TorchBackend
from trainer.train import main_and_exit

KILL_RANK, KILL_AT, KILL_COUNT = os.environ["KILL_RANK"], os.environ["KILL_AT"], int(os.environ["KILL_COUNT"])
KILL_BYTES = int(os.environ.get("KILL_BYTES", "0"))


class PassCounter:
    """Counts how often this rank passes a place of the program."""

    def __init__(self, place: str) -> None:
        self._numbers = count(1)
        self._watched = os.environ["RANK"] == KILL_RANK and place == KILL_AT

    def must_die_now(self) -> bool:
        return self._watched and next(self._numbers) == KILL_COUNT


steps, writes, copies, marks = PassCounter("step"), PassCounter("write"), PassCounter("copy"), PassCounter("mark")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KilledBackend(TorchBackend):
    def optimizer_step(self, *, num_samples: int) -> None:
        if steps.must_die_now():
            die()
        super().optimizer_step(num_samples=num_samples)


class KilledFile:
    """Writes KILL_BYTES bytes, and dies."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = KILL_BYTES

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
def atomic_write_with_kill(path: Path, *, what: str) -> Iterator[object]:
    with atomic_write(path, what=what) as file:
        yield KilledFile(file) if writes.must_die_now() else file


class KilledFolder(S3Folder):
    def upload(self, path: Path, name: str, *, metadata: Mapping[str, str] = NO_METADATA) -> None:
        super().upload(path, name, metadata=metadata)
        if "-resume-" in name and copies.must_die_now():
            die()


def write_marker_with_kill(path: Path, marker: CompletionMarker) -> None:
    if marks.must_die_now():
        die()
    write_marker(path, marker)


if __name__ == "__main__":
    with (
        patch("trainer.torch_backend.create_backend.TorchBackend", KilledBackend),
        patch("trainer.checkpoint.format.atomic_write", atomic_write_with_kill),
        patch("trainer.checkpoint.store.S3Folder", KilledFolder),
        patch("trainer.checkpoint.store.write_marker", write_marker_with_kill),
    ):
        main_and_exit()
