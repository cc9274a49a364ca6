"""Test that a download deletes what earlier ones have left, and nothing that another one writes."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from launcher.errors import LaunchError
from launcher.runner.s3 import download, leftovers
from launcher.runner.s3.download import Download
from launcher.runner.s3.leftovers import remove_leftovers
from launcher.runner.s3.listing import Object
from launcher.runner.s3.locked_part import create_part
from launcher.runner.s3.ranged_file import RangedFile
from launcher.runner.sync.part_file import temporary_path
from tests.launcher.s3_server import MODIFIED_S, running_bucket

LARGE = Object("set/large", size=25, modified_s=MODIFIED_S, etag='"1"')


class Idle:
    """Stands in for the workers of a download that fetches nothing."""

    def __init__(self, _address: object) -> None:
        self._events: SimpleQueue[Any] = SimpleQueue()
        self.post: Callable[[Any], None] = self._events.put
        self.next_event: Callable[[], Any] = self._events.get

    def end(self) -> None:
        pass


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file count as old."""
    monkeypatch.setattr(leftovers, "MIN_AGE_S", -1.0)


@pytest.fixture
def left(tmp_path: Path) -> set[str]:
    """Leave a large file with its journal, a small file, and the journal of a file that has its name."""
    file = RangedFile(f"{tmp_path}/large", LARGE)
    file.open()
    file.receive(0)
    file.release()
    temporary_path(tmp_path / "small").write_text("some")
    temporary_path(tmp_path / "whole").with_suffix(".ranges").write_text("x\n")
    found = names(tmp_path)
    assert len(found) == 4
    return found


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_leftovers_are_deleted_a_day_after_their_last_change(
    tmp_path: Path, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".launch-part-mine").write_text("not ours")
    for name in left:
        # A part that is about to get its name has its object's time.
        os.utime(tmp_path / name, (MODIFIED_S, MODIFIED_S))
    changed = time.time()
    monkeypatch.setattr(time, "time", lambda: changed + 86400 - 60)
    remove_leftovers([str(tmp_path), str(tmp_path / "gone")])
    assert names(tmp_path) == {*left, ".launch-part-mine"}
    monkeypatch.setattr(time, "time", lambda: changed + 86400 + 60)
    remove_leftovers([str(tmp_path), str(tmp_path / "gone")])
    assert names(tmp_path) == {".launch-part-mine"}


@pytest.mark.usefixtures("old")
def test_part_that_another_download_has_stays_with_its_journal(tmp_path: Path) -> None:
    file = RangedFile(f"{tmp_path}/large", LARGE)
    file.open()
    small = create_part(tmp_path / "small")
    before = names(tmp_path)
    remove_leftovers([str(tmp_path)])
    assert names(tmp_path) == before
    os.close(small)
    file.release()


@pytest.mark.usefixtures("old")
def test_no_part_is_deleted_without_its_lock(tmp_path: Path, left: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    remove_leftovers([str(tmp_path)])
    assert names(tmp_path) == left


@pytest.mark.usefixtures("old")
def test_another_users_parts_and_links_stay(tmp_path: Path, left: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("mine")
    temporary_path(tmp_path / "link").symlink_to(tmp_path / "mine")
    before = names(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        remove_leftovers([str(tmp_path)])
        assert names(tmp_path) == before
    remove_leftovers([str(tmp_path)])
    assert names(tmp_path) == before - left


def run_download(directory: Path, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Download the objects of a bucket; return the counts."""
    with running_bucket() as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        bucket.objects = objects
        words: dict[str, Any] = {"bucket": "bucket", "prefix": "set/", "directory": str(directory), "shard": None}
        return Download(**words, report=lambda counts: None).run()


@pytest.mark.usefixtures("old")
def test_download_deletes_leftovers_where_it_has_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "Workers", Idle)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/x").write_text("x")
    os.utime(tmp_path / "there/x", (MODIFIED_S, MODIFIED_S))
    for path in (tmp_path / "there/y", tmp_path / "y"):
        temporary_path(path).write_text("y")
    assert run_download(tmp_path, {"set/there/x": b"x"}, monkeypatch) == {"files": 0, "bytes": 0, "total": 0}
    assert names(tmp_path / "there") == {"x"}
    assert temporary_path(tmp_path / "y").exists()


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(("size", "fits"), [(10, True), (9, False)])
def test_leftovers_that_fill_the_disk_are_deleted_before_a_download_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, *, fits: bool
) -> None:
    left = temporary_path(tmp_path / "gone")
    left.write_bytes(b"left")
    monkeypatch.setattr(download, "_free_bytes", lambda _: size - (4 if left.exists() else 0))
    if fits:
        assert run_download(tmp_path, {"set/x": b"0123456789"}, monkeypatch)["files"] == 1
    else:
        with pytest.raises(LaunchError, match="not enough space: 10 bytes needed, 9 free"):
            run_download(tmp_path, {"set/x": b"0123456789"}, monkeypatch)
    assert not left.exists()
