"""Test datasets in S3, with the real AWS command line and an S3 server."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from tests.trainer.conftest import BUCKET
from trainer.config.settings import TrainConfig
from trainer.data.s3_download import local_directory
from trainer.errors import TrainerError, UsageError
from trainer.s3 import S3Folder

PLACE = f"s3://{BUCKET}/sets/animals"
pytestmark = pytest.mark.usefixtures("aws")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def put(**contents: str) -> None:
    for name, content in contents.items():
        boto3.client("s3").put_object(Bucket=BUCKET, Key=f"sets/animals/train/{name}", Body=content.encode())


def held(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (directory / "train").iterdir()}


def test_directory_mirrors_the_s3_folder(tmp_path: Path) -> None:
    put(cat="small", dog="large")
    boto3.client("s3").put_object(Bucket=BUCKET, Key="sets/animals-too/train/eel", Body=b"long")
    directory = local_directory(PLACE)
    assert directory == tmp_path / f"deeplearning/data/{BUCKET}/sets/animals"
    assert held(directory) == {"cat": "small", "dog": "large"}
    # The size differs, because S3 gives times in seconds and these may be equal.
    put(cat="grown up")
    boto3.client("s3").delete_object(Bucket=BUCKET, Key="sets/animals/train/dog")
    assert held(local_directory(f"{PLACE}/")) == {"cat": "grown up"}


def test_failing_download_is_reported() -> None:
    with pytest.raises(TrainerError, match=r"aws s3 sync s3://no-such-bucket/x/: .*NoSuchBucket"):
        local_directory("s3://no-such-bucket/x")


@pytest.mark.parametrize("place", ["s3://", "s3:///x", "s3://bucket/../x", "s3://bucket/x/..", "s3://bucket//x"])
def test_unusable_cache_directory_is_reported(place: str) -> None:
    with pytest.raises(UsageError, match="--data-dir must be a directory or s3://BUCKET/FOLDER, got s3://"):
        TrainConfig(data_dir=place)


def test_local_directory_is_used_as_is(tmp_path: Path) -> None:
    assert local_directory(str(tmp_path)) == tmp_path


def test_concurrent_process_does_not_download_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    waits, ends = threading.Event(), threading.Event()

    def download_all(folder: S3Folder, directory: Path, *, timeout_s: float) -> None:
        fetched.append(str(folder))
        waits.set()
        assert ends.wait(60)

    def write_late(path: Path, text: str) -> None:
        """Write like Linux, whose time of a write may be older than the write itself."""
        path.write_bytes(text.encode())
        os.utime(path, (time.time() - 60, time.time() - 60))

    monkeypatch.setattr(S3Folder, "download_all", download_all)
    monkeypatch.setattr(Path, "write_text", write_late)
    with ThreadPoolExecutor() as ranks:
        first = ranks.submit(local_directory, PLACE)
        assert waits.wait(60)
        asked = threading.Event()
        monkeypatch.setattr("trainer.data.s3_download.time.sleep", lambda _: asked.set())
        second = ranks.submit(local_directory, PLACE)
        assert asked.wait(60)
        ends.set()
        assert first.result(60) == second.result(60) == tmp_path / f"deeplearning/data/{BUCKET}/sets/animals"
    assert fetched == [PLACE]
    local_directory(PLACE)
    assert fetched == [PLACE] * 2


@pytest.mark.parametrize("scratch", [True, False])
def test_copy_is_stored_on_the_scratch_disks_if_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: bool
) -> None:
    put(cat="small")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DEEPLEARNING_SCRATCH", str(tmp_path / "nvme") if scratch else "")
    directory = local_directory(PLACE)
    assert held(directory) == {"cat": "small"}
    cache = f"nvme/cache-{os.getuid()}" if scratch else "home/.cache"
    assert directory == tmp_path / cache / f"deeplearning/data/{BUCKET}/sets/animals"
