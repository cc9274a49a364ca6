"""Test RecordIO files in S3 against the same files on this machine, with an S3 server and with one that breaks."""

import io
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
import torch
from botocore.exceptions import ResponseStreamingError
from PIL import Image

from tests.trainer.conftest import BUCKET
from trainer.config.parser import parse
from trainer.data.batches import Augmentation, prepare
from trainer.data.images import s3_object
from trainer.data.images.s3_object import S3Object
from trainer.data.opening import open_data
from trainer.data.samples import DataSet
from trainer.errors import TrainerError, UsageError
from trainer.im2rec.conversion import convert
from trainer.torch_backend.device_loader import DeviceLoader, load_micro_batches

OPTIONS = "--image-shape 3,28,28 --num-classes 2"
URL = f"s3://{BUCKET}/sets/train.rec"


@pytest.fixture
def files(tmp_path: Path, aws: None) -> Path:
    """Return the folder of two files with two classes of three images, which are in S3 too."""
    for part in ("train", "val"):
        for number, name in enumerate(("blue", "red")):
            (tmp_path / part / name).mkdir(parents=True)
            for own in range(3):
                noise = np.random.default_rng([number, own]).integers(0, 256, (50 + own, 60, 3), np.uint8)
                Image.fromarray(noise).save(tmp_path / part / name / f"{own}.jpg")
        convert(tmp_path / part, tmp_path / part)
        for suffix in ("rec", "idx"):
            boto3.client("s3").upload_file(str(tmp_path / f"{part}.{suffix}"), BUCKET, f"sets/{part}.{suffix}")
    return tmp_path


def open_in_s3(options: str = OPTIONS) -> DataSet:
    return open_data(parse(f"--data-train {URL} --data-val s3://{BUCKET}/sets/val.rec {options}".split()))


def test_batches_equal_those_of_the_local_file_bit_for_bit(files: Path) -> None:
    config = parse(f"--data-train {files}/train.rec --data-val {files}/val.rec {OPTIONS}".split())
    local = open_data(config)
    draws = Augmentation.of(config).draw(epoch=3, samples=6)
    indices = np.array([4, 1, 5, 0])
    images, labels = prepare(local, local.train, indices, draws)

    ours = open_in_s3()
    assert ours.describe_counts() == local.describe_counts()
    read, known = prepare(ours, ours.train, indices, draws)
    assert read.tobytes() == images.tobytes()
    assert known.tolist() == labels.tolist()
    # Only this rank's share has been asked for.
    assert np.flatnonzero(ours.train.labels < 0).tolist() == [2, 3]

    ours = open_in_s3()
    load = DeviceLoader(ours, device=torch.device("cpu"), channels_last=False, memory=0)
    batch, known = load(ours.train, indices, draws)
    assert np.array_equal(batch.images.numpy(), images)
    assert batch.targets.tolist() == known.tolist() == labels.tolist()

    ours = open_in_s3()
    parts, _ = load_micro_batches(partial(prepare, ours), 2, ours.train, indices, draws)
    assert [label for _, known in parts for label in known.tolist()] == labels.tolist()

    held_out = prepare(ours, ours.validation, np.arange(6))
    assert held_out[0].tobytes() == prepare(local, local.validation, np.arange(6))[0].tobytes()


def test_file_that_changes_during_the_run_ends_it_with_one_line(files: Path) -> None:
    data = open_in_s3()
    boto3.client("s3").put_object(Bucket=BUCKET, Key="sets/train.rec", Body=(files / "val.rec").read_bytes() + b"more")
    with pytest.raises(
        TrainerError, match=rf'^{URL} has changed since the run opened it \(its ETag was "\w+"\): store '
    ) as e:
        data.train.read(np.array([2]))
    assert "\n" not in str(e.value)


def test_what_is_missing_is_told_in_one_line(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^--num-classes must be given with --data-train in S3, where labels are "):
        open_in_s3("--image-shape 3,28,28")
    with pytest.raises(TrainerError, match=rf"^the record at byte \d+ of {URL} has the label 1, must be below 1, "):
        open_in_s3("--image-shape 3,28,28 --num-classes 1").train.read(np.arange(6))
    boto3.client("s3").delete_object(Bucket=BUCKET, Key="sets/train.idx")
    with pytest.raises(TrainerError, match=rf"^cannot read s3://{BUCKET}/sets/train.idx, no such object$"):
        open_in_s3()
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(
        TrainerError, match=r"^RecordIO files in S3 need boto3, which this Python lacks: .* install boto3$"
    ):
        open_in_s3()


class BreakingS3:
    """Client of S3 whose connections break after three bytes, and that records the ranges it is asked for."""

    def __init__(self, content: bytes, *, breaks: int) -> None:
        self._content = content
        self._breaks = breaks
        self.asked: list[str] = []

    def head_object(self, **_: str) -> Mapping[str, Any]:
        return {"ContentLength": len(self._content), "ETag": "1"}

    def get_object(self, *, Range: str, **_: str) -> Mapping[str, Any]:  # noqa: N803
        self.asked.append(Range)
        begin, end = map(int, Range.removeprefix("bytes=").split("-"))
        return {"Body": self._body(self._content[begin : end + 1])}

    def _body(self, content: bytes) -> io.BytesIO:
        if not self._breaks:
            return io.BytesIO(content)
        self._breaks -= 1
        return BrokenBody(content[:3])


class BrokenBody(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if content := super().read(size):
            return content
        raise ResponseStreamingError(error="Connection broken")


def test_broken_connection_is_replaced_by_one_that_reads_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_object, "PAUSE_S", 0)
    client = BreakingS3(bytes(range(20)), breaks=2)
    assert S3Object("s3://b/a.rec", client=client).read(4, 10) == bytes(range(4, 14))
    assert client.asked == ["bytes=4-13", "bytes=7-13", "bytes=10-13"]


def test_connection_that_keeps_breaking_ends_at_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_object, "READ_S", 0)
    client = BreakingS3(bytes(20), breaks=9)
    with pytest.raises(TrainerError, match=r"^cannot read s3://b/a.rec, .*Connection broken"):
        S3Object("s3://b/a.rec", client=client).read(0, 20)
