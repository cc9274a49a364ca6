"""Test RecordIO files in S3 against the same files on this machine, with an S3 server and with one that breaks."""

import sys
from functools import partial
from pathlib import Path

import boto3
import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainer.conftest import BUCKET
from trainer.config.command_line import parse
from trainer.data.batches import Augmentation, load_and_transform
from trainer.data.dataset import Dataset
from trainer.data.images import recordio_dataset
from trainer.data.images.recordio_dataset import RecordsInS3
from trainer.data.images.recordio_file import url_of_index
from trainer.data.images.s3_object import S3Object
from trainer.data.open_dataset import open_data
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


def open_in_s3(options: str = OPTIONS) -> Dataset:
    return open_data(parse(f"--data-train {URL} --data-val s3://{BUCKET}/sets/val.rec {options}".split()))


def test_batches_equal_those_of_the_local_file_bit_for_bit(files: Path) -> None:
    config = parse(f"--data-train {files}/train.rec --data-val {files}/val.rec {OPTIONS}".split())
    local = open_data(config)
    params = Augmentation.from_config(config).draw(epoch=3, samples=6)
    indices = np.array([4, 1, 5, 0])
    images, labels = load_and_transform(local, local.train, indices, params)

    remote = open_in_s3()
    assert remote.describe_counts() == local.describe_counts()
    read, known = load_and_transform(remote, remote.train, indices, params)
    assert read.tobytes() == images.tobytes()
    assert known.tolist() == labels.tolist()
    # Only this rank's share has been asked for.
    assert np.flatnonzero(remote.train.labels < 0).tolist() == [2, 3]

    remote = open_in_s3()
    load = DeviceLoader(remote, device=torch.device("cpu"), channels_last=False, memory=0)
    batch, known = load(remote.train, indices, params)
    assert np.array_equal(batch.images.numpy(), images)
    assert batch.targets.tolist() == known.tolist() == labels.tolist()

    remote = open_in_s3()
    parts, _ = load_micro_batches(partial(load_and_transform, remote), 2, remote.train, indices, params)
    assert [label for _, known in parts for label in known.tolist()] == labels.tolist()

    held_out = load_and_transform(remote, remote.validation, np.arange(6))
    assert held_out[0].tobytes() == load_and_transform(local, local.validation, np.arange(6))[0].tobytes()


def test_file_that_changes_during_the_run_ends_it_with_one_line(files: Path) -> None:
    data = open_in_s3()
    boto3.client("s3").put_object(Bucket=BUCKET, Key="sets/train.rec", Body=(files / "val.rec").read_bytes() + b"more")
    with pytest.raises(
        TrainerError, match=rf'^{URL} has changed since the run opened it \(its ETag was "\w+"\): store '
    ) as e:
        data.train.read(np.array([2]))
    assert "\n" not in str(e.value)


def test_changed_index_file_changes_the_versions(files: Path) -> None:
    before = open_in_s3().versions
    boto3.client("s3").put_object(
        Bucket=BUCKET, Key="sets/train.idx", Body=b"\n".join((files / "train.idx").read_bytes().splitlines()[::-1])
    )
    assert [old == new for old, new in zip(before, open_in_s3().versions, strict=True)] == [True, False, True, True]


def test_there_are_as_many_connections_as_threads(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordio_dataset, "decode_threads", lambda _: 64)
    data = open_in_s3()
    assert isinstance(data.train, RecordsInS3)
    assert isinstance(data.validation, RecordsInS3)
    assert data.train.threads is data.validation.threads
    assert data.train.threads._max_workers == 64
    assert isinstance(data.train.file.content, S3Object)
    assert data.train.file.content._client.meta.config.max_pool_connections == 64


@pytest.mark.parametrize(
    ("url", "index"),
    [
        ("s3://b/a//b/./train.rec", "s3://b/a//b/./train.idx"),
        ("s3://b/v1.2/train", "s3://b/v1.2/train.idx"),
        ("s3://b/train.1.rec", "s3://b/train.1.idx"),
    ],
)
def test_index_is_beside_the_file(url: str, index: str) -> None:
    assert url_of_index(url) == index


def test_missing_objects_are_reported_in_one_line(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^--num-classes must be given with --data-train in S3, where labels are "):
        open_in_s3("--image-shape 3,28,28")
    with pytest.raises(TrainerError, match=rf"^{files}/val.rec has the label 1, --num-classes is 1$"):
        open_data(parse(f"--data-train {URL} --data-val {files}/val.rec --image-shape 3,28,28 --num-classes 1".split()))
    with pytest.raises(TrainerError, match=rf"^the record at byte \d+ of {URL} has the label 1, must be below 1, "):
        open_in_s3("--image-shape 3,28,28 --num-classes 1").train.read(np.arange(6))
    boto3.client("s3").delete_object(Bucket=BUCKET, Key="sets/train.idx")
    with pytest.raises(TrainerError, match=rf"^cannot read s3://{BUCKET}/sets/train.idx: no such object$"):
        open_in_s3()
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(
        TrainerError, match=r"^RecordIO files in S3 need boto3, which this Python lacks: .* install boto3$"
    ):
        open_in_s3()
