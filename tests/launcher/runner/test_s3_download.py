"""Test that a download takes in what arrives while a large file waits for the disk."""

import os
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from launcher.errors import LaunchError
from launcher.runner.s3 import download, ranged_file
from launcher.runner.s3.download import Download
from launcher.runner.s3.workers import Arrived, Task
from tests.launcher.s3_server import Bucket, running_bucket

LARGE, SMALL = "set/a-large", "set/b-small"


class Instant:
    """Stands in for the workers: every task is done at once, in the order in which they are given."""

    small_taken_in: Event

    def __init__(self, _address: object) -> None:
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._last: Any = None
        self.tasks, self.post = self, self._events.put

    def put(self, task: Task) -> None:
        self.post(Arrived(task.path, task.start, task.stop - task.start or task.s3_object.size, bool(task.stop)))

    def next_event(self) -> Any:
        if isinstance(self._last, Arrived) and not self._last.is_range:
            self.small_taken_in.set()
        self._last = self._events.get()
        return self._last

    def end(self) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Serve a large and a small object; the large one arrives in ranges."""
    monkeypatch.setattr(Instant, "small_taken_in", Event(), raising=False)
    monkeypatch.setattr(download, "Workers", Instant)
    for module in (download, ranged_file):
        monkeypatch.setattr(module, "RANGE_SIZE", 10)
    with running_bucket() as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        bucket.objects = {LARGE: b"x" * 25, SMALL: b"small"}
        yield bucket


def run(directory: Path) -> dict[str, object]:
    made = Download(bucket="bucket", prefix="set/", directory=str(directory), shard=None, report=lambda counts: None)
    return made.run()


@pytest.mark.usefixtures("bucket")
def test_large_file_that_waits_for_the_disk_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda _: waited.append(Instant.small_taken_in.wait(20)))
    assert run(tmp_path) == {"files": 2, "bytes": 30, "total": 30}
    assert waited == [True]
    assert (tmp_path / "a-large").stat().st_size == 25


@pytest.mark.usefixtures("bucket")
def test_large_file_that_the_disk_refuses_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LaunchError, match=f"{tmp_path}: Input/output error"):
        run(tmp_path)
    assert not (tmp_path / "a-large").exists()
