"""Test the requests for single objects, and files that arrive in ranges."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from launcher.errors import LaunchError
from launcher.runner.s3 import ranged_file
from launcher.runner.s3.listing import Address, Listing, Object
from launcher.runner.s3.locked_part import create_part
from launcher.runner.s3.object_reader import ObjectReader
from launcher.runner.s3.ranged_file import RangedFile
from launcher.runner.sync.part_file import temporary_path
from tests.launcher.s3_server import MODIFIED_S, Answer, Bucket, running_bucket

LARGE = Object("set/large", size=25, modified_s=1_760_000_000, etag='"1"')


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with running_bucket() as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        bucket.objects["x"] = b"0123456789"
        yield bucket


def reader(bucket: Bucket) -> ObjectReader:
    return ObjectReader(Address(f"{bucket.url}/bucket/", "us-east-1", "bucket"), connections=1)


def open_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT)


def test_request_is_repeated_after_an_overload_or_a_lost_connection(bucket: Bucket, tmp_path: Path) -> None:
    faults = [Answer(503, b"<Error><Code>SlowDown</Code></Error>"), Answer(200, b"0123456789", cut=3)]
    bucket.fault = lambda key, wanted: faults.pop(0) if faults else None
    file = open_file(tmp_path / "x")
    assert reader(bucket).read_whole("x", file, etag=bucket.etag("x")) == 10
    os.close(file)
    assert (tmp_path / "x").read_bytes() == b"0123456789"
    assert len(bucket.requests) == 3


THROTTLED = {
    "503": Answer(503, b"<Error><Code>SlowDown</Code></Error>"),
    "429": Answer(429),
    "KMS": Answer(400, b"<Error><Code>KMS.ThrottlingException</Code><Message>Rate exceeded</Message></Error>"),
}


@pytest.mark.parametrize("answer", THROTTLED.values(), ids=THROTTLED)
def test_throttled_request_uses_up_no_attempt(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    faults = [answer] * 20
    bucket.fault = lambda key, wanted: faults.pop() if faults else None
    file = open_file(tmp_path / "x")
    assert reader(bucket).read_whole("x", file, etag=bucket.etag("x")) == 10
    os.close(file)
    assert len(pauses) == 20
    assert 15 <= max(pauses) <= 30


@pytest.mark.parametrize("answer", THROTTLED.values(), ids=THROTTLED)
def test_throttled_listing_continues_after_the_last_key(bucket: Bucket, answer: Answer) -> None:
    bucket.objects = {str(number): b"x" for number in range(5)}
    faults = [answer] * 20
    bucket.listing_fault = lambda after: faults.pop() if faults and after == "1" else None
    assert [found.key for page in Listing("bucket", "").pages() for found in page] == ["0", "1", "2", "3", "4"]
    assert not faults


def test_request_that_times_out_is_repeated(bucket: Bucket, tmp_path: Path) -> None:
    faults = [Answer(400, b"<Error><Code>RequestTimeout</Code></Error>")] * 5
    bucket.fault = lambda key, wanted: faults.pop() if faults else None
    file = open_file(tmp_path / "x")
    assert reader(bucket).read_whole("x", file, etag=bucket.etag("x")) == 10
    os.close(file)


def test_roles_credentials_are_asked_for_again(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", bucket.url)
    bucket.metadata_faults = 4
    reader(bucket)
    bucket.metadata_faults = 4
    assert [*Listing("bucket", "").pages()] == [[Object("x", 10, MODIFIED_S, bucket.etag("x"))]]


@pytest.mark.parametrize("has_crc", [True, False], ids=["CRC-32", "MD5"])
def test_object_that_arrives_damaged_is_an_error(bucket: Bucket, tmp_path: Path, *, has_crc: bool) -> None:
    bucket.damaged, bucket.has_crc = {"x"}, has_crc
    file = open_file(tmp_path / "x")
    with pytest.raises(LaunchError, match="s3://bucket/x: arrived damaged, 6 attempts"):
        reader(bucket).read_whole("x", file, etag=bucket.etag("x"))
    os.close(file)


@pytest.mark.parametrize(
    ("etag", "encryption"),
    [('"781e5e245d69b566979b86e28d23f2c7-1"', "AES256"), ('"781e5e245d69b566979b86e28d23f2c8"', "aws:kms")],
    ids=["parts", "KMS"],
)
def test_entity_tag_that_is_not_the_md5_is_not_compared(
    bucket: Bucket, tmp_path: Path, etag: str, encryption: str
) -> None:
    bucket.etags["x"], bucket.encryption, bucket.has_crc = etag, encryption, False
    file = open_file(tmp_path / "x")
    assert reader(bucket).read_whole("x", file, etag=etag) == 10
    os.close(file)


def test_range_of_a_replaced_object_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    file = open_file(tmp_path / "x")
    reader(bucket).read_range("x", file, start=2, stop=5, etag=bucket.etag("x"))
    with pytest.raises(LaunchError, match="s3://bucket/x: was replaced while it was fetched"):
        reader(bucket).read_range("x", file, start=5, stop=8, etag='"other"')
    os.close(file)
    assert (tmp_path / "x").read_bytes() == b"\0\x00234"


def test_small_object_that_was_replaced_after_it_was_listed_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    listed = bucket.etag("x")
    bucket.objects["x"] = b"9876543210"
    file = open_file(tmp_path / "x")
    with pytest.raises(LaunchError, match="s3://bucket/x: was replaced while it was fetched; run the same line again"):
        reader(bucket).read_whole("x", file, etag=listed)
    os.close(file)


def test_ranged_file_continues_only_for_the_same_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged_file, "RANGE_SIZE", 10)
    file = RangedFile(f"{tmp_path}/large", LARGE)
    assert file.open() == [(0, 10), (10, 20), (20, 25)]
    file.receive(10)
    file.release()
    again = RangedFile(f"{tmp_path}/large", LARGE)
    assert again.open() == [(0, 10), (20, 25)]
    again.release()
    other = RangedFile(f"{tmp_path}/large", LARGE._replace(etag='"2"'))
    assert other.open() == [(0, 10), (10, 20), (20, 25)]
    for start in (20, 0, 10):
        assert not other.is_complete
        other.receive(start)
    assert other.is_complete
    other.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["large"]
    assert (tmp_path / "large").stat().st_mtime == LARGE.modified_s


def test_ranged_file_is_synced_to_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((tmp_path / "large").exists()))
    file = RangedFile(f"{tmp_path}/large", LARGE)
    file.open()
    file.receive(0)
    file.finish()
    assert synced == [False]


def test_file_that_another_download_writes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    file = RangedFile(f"{path}", LARGE)
    file.open()
    with file.part.open("r+b") as part:
        part.write(b"other")
    with pytest.raises(LaunchError, match="large: another launch fetches it at the moment"):
        RangedFile(f"{path}", LARGE).open()
    with pytest.raises(LaunchError, match="large: another launch fetches it at the moment"):
        create_part(path)
    assert file.part.read_bytes()[:5] == b"other"
    file.receive(0)
    file.finish()
    os.close(create_part(path))


def test_stale_part_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    path, mine = tmp_path / "x", tmp_path / "mine"
    mine.write_text("mine")
    temporary_path(path).symlink_to(mine)
    os.close(create_part(path))
    temporary_path(path).write_text("longer than before")
    file = create_part(path)
    assert os.fstat(file).st_size == 0
    os.close(file)
    assert mine.read_text() == "mine"


def test_ranged_file_starts_over_after_a_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged_file, "RANGE_SIZE", 10)
    file = RangedFile(f"{tmp_path}/large", LARGE)
    file.open()
    file.receive(0)
    file.release()
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    monkeypatch.setattr(ranged_file, "BOOT_ID", boot)
    assert RangedFile(f"{tmp_path}/large", LARGE).open() == [(0, 10), (10, 20), (20, 25)]


class _SentError(Exception):
    """The first request was about to be sent."""


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, "bucket.s3.cn-north-1.amazonaws.com.cn"),
        ({"AWS_DEFAULT_REGION": "us-gov-west-1"}, "bucket.s3.us-gov-west-1.amazonaws.com"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-gov-west-1"}, "bucket.s3.eu-west-1.amazonaws.com"),
    ],
    ids=["node", "default", "both"],
)
def test_first_request_goes_to_the_region_of_the_user_or_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], host: str
) -> None:
    config = tmp_path / "node.json"
    config.write_text(json.dumps({"region": "cn-north-1"}))
    monkeypatch.setattr("launcher.hosts.node_config.NODE_CONFIG_FILE", str(config))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": os.devnull}
    for name, value in {**keys, **variables}.items():
        monkeypatch.setenv(name, value)
    session, urls = botocore.session.Session(), list[str]()

    def keep(request: Any, **_: Any) -> None:
        urls.append(request.url)
        raise _SentError

    session.get_component("event_emitter").register_last("before-send.s3.ListObjectsV2", keep)
    monkeypatch.setattr("launcher.runner.s3.listing.botocore.session.get_session", lambda: session)
    listing = Listing("bucket", "set/")
    with pytest.raises(_SentError):
        next(listing.pages())
    assert urls[0].startswith(f"https://{host}/?")
    assert listing.address.region == host.split(".")[2]
