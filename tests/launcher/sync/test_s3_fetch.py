"""Test what a node fetches from a bucket, in the process that the runner starts for it."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from launcher.errors import LaunchError
from launcher.runner.s3 import shard
from launcher.runner.s3.ranged_file import RANGE_SIZE
from launcher.runner.sync.s3_fetch import fetch
from tests.launcher.loopback_cluster import parent, variables
from tests.launcher.s3_server import MODIFIED_S, Answer, Bucket, running_bucket
from tests.launcher.sync.cluster_with_homes import ClusterWithHomes, tree
from tests.waiting import wait_until

DENIED = Answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with running_bucket() as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        yield bucket


def fetch_to(directory: Path, *, shard: list[int] | None = None, timeout_s: float = 60.0) -> dict[str, Any]:
    return fetch("s3://bucket/set", directory, shard=shard, timeout_s=timeout_s, report=lambda counts: None)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def journal_lines(directory: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in directory.glob(".launch-part-*.ranges"))


def test_missing_objects_are_fetched_and_other_files_are_kept(bucket: Bucket, tmp_path: Path) -> None:
    data = tmp_path / "data"
    bucket.objects = {
        "set/a b/é+%~.txt": b"one",
        "set/empty": b"",
        "set/old": b"new",
        "set/folder/": b"",
        "sets/x": b"x",
    }
    data.mkdir()
    (data / "mine").write_text("mine")
    (data / "old").write_text("old")
    assert fetch_to(data) == {"files": 3, "bytes": 6, "total": 6}
    assert tree(data) == {"a b": "", "a b/é+%~.txt": "one", "empty": "", "mine": "mine", "old": "new"}
    assert (data / "old").stat().st_mtime == MODIFIED_S
    bucket.requests.clear()
    assert fetch_to(data) == {"files": 0, "bytes": 0, "total": 0}
    assert bucket.requests == []
    # Somebody changes it in the second in which the object was written.
    (data / "old").write_text("odd")
    os.utime(data / "old", (MODIFIED_S, MODIFIED_S + 0.5))
    assert fetch_to(data) == {"files": 1, "bytes": 3, "total": 3}


def test_each_file_goes_to_one_node_which_refuses_a_second_share(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {f"set/{number}": b"x" for number in range(20)}
    shares = []
    for index in range(2):
        fetch_to(tmp_path / str(index), shard=[index, 2])
        shares.append(names(tmp_path / str(index)))
    assert shares[0] | shares[1] == {str(number) for number in range(20)}
    assert not shares[0] & shares[1]
    assert all(shares)
    with pytest.raises(LaunchError, match=rf"0 holds {len(shares[0])} files of another share "):
        fetch_to(tmp_path / "0", shard=[1, 2])
    assert fetch_to(tmp_path / "0", shard=[0, 2])["files"] == 0


def test_nodes_with_one_file_system_may_see_all_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path.stat()
    place = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(shard, "MOUNTS", mounts)
    for kind, files_of_other_shards in [("nfs4", 0), ("ext4", 1)]:
        mounts.write_text(f"36 35 0:1 / /a rw - {kind}x a rw\n37 35 {place} / /b rw shared:1 - {kind} b rw\n")
        found = shard.Shard([0, 2], directory=str(tmp_path))
        assert [found.has(key, str(mounts)) for key in ("0", "4")].count(True) == 1
        assert found.files_of_other_shards == files_of_other_shards


def test_large_file_continues_where_an_earlier_fetch_ended(bucket: Bucket, tmp_path: Path) -> None:
    content = os.urandom(RANGE_SIZE) + os.urandom(RANGE_SIZE) + b"end"
    bucket.objects = {"set/large": content}
    last = f"bytes={2 * RANGE_SIZE}-{2 * RANGE_SIZE + 2}"

    def refuse_last(_: str, wanted: str) -> Answer | None:
        """Refuse the last range once the others are noted."""
        if wanted != last:
            return None
        wait_until(lambda: journal_lines(tmp_path / "data") == 3, "two ranges", timeout_s=50, every_s=0.01)
        return DENIED

    bucket.fault = refuse_last
    with pytest.raises(LaunchError, match="s3://bucket/set/large: this node may not read it"):
        fetch_to(tmp_path / "data")
    assert "large" not in names(tmp_path / "data")
    bucket.fault = lambda key, wanted: None
    bucket.requests.clear()
    assert fetch_to(tmp_path / "data") == {"files": 1, "bytes": 3, "total": 3}
    assert bucket.requests == [("set/large", last)]
    assert (tmp_path / "data/large").read_bytes() == content
    assert names(tmp_path / "data") == {"large"}


def test_listing_that_is_refused_or_empty_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"^s3://bucket/set is empty$"):
        fetch_to(tmp_path / "data")
    absent = Answer(404, b"<Error><Code>NoSuchBucket</Code><Message>None.</Message></Error>")
    bucket.listing_fault = lambda after: absent
    with pytest.raises(LaunchError, match=r"^s3://bucket/set: An error occurred \(NoSuchBucket\) .*: None\.$"):
        fetch_to(tmp_path / "data")


@pytest.mark.parametrize(
    ("action", "advice"),
    [
        ("s3:Get", "this node may not read it: add bucket/set to data_buckets in cdk.json, then cdk deploy "),
        ("kms:Decrypt", "this node may not use its key: name the key's ARN in data_keys of cdk.json, then cdk deploy$"),
        ("s3:Get with an explicit deny", "a policy denies it to this node: not authorized to perform: s3:Get with an "),
    ],
)
def test_refusal_names_the_setting_that_would_allow_it(
    bucket: Bucket, tmp_path: Path, action: str, advice: str
) -> None:
    message = f"User: arn:aws:sts::1:assumed-role/r/i-1 is not authorized to perform: {action}"
    denied = Answer(403, f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode())
    bucket.objects = {"set/x": b"x"}
    bucket.fault = lambda key, wanted: denied
    with pytest.raises(LaunchError, match=f"^s3://bucket/set/x: {advice}"):
        fetch_to(tmp_path / "data")
    bucket.listing_fault = lambda after: denied
    with pytest.raises(LaunchError, match=f"^s3://bucket/set: {advice}"):
        fetch_to(tmp_path / "data")
    assert names(tmp_path / "data") == set()


def test_archived_objects_are_an_error_before_anything_is_fetched(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"set/a": b"a", "set/b": b"b", "set/c": b"c"}
    frozen = "<StorageClass>GLACIER</StorageClass>"
    status = "<RestoreStatus><RestoreExpiryDate>2999-01-01T00:00:00Z</RestoreExpiryDate></RestoreStatus>"
    bucket.classes = {"set/a": frozen, "set/b": frozen + status, "set/c": frozen}
    with pytest.raises(LaunchError, match=r"set/a and 1 more: archived \(GLACIER\), restore it first"):
        fetch_to(tmp_path / "data")
    assert bucket.requests == []
    bucket.classes = dict.fromkeys(bucket.objects, frozen + status)
    assert fetch_to(tmp_path / "data")["files"] == 3


@pytest.mark.parametrize("name", ["../../x", "a//x", "./x"])
def test_no_object_is_written_outside_of_the_directory_or_in_anothers_place(
    bucket: Bucket, tmp_path: Path, name: str
) -> None:
    bucket.objects = {f"set/{name}": b"x"}
    with pytest.raises(LaunchError, match=f"'{name}' does not name a file of its own below"):
        fetch_to(tmp_path / "data")
    assert not (tmp_path / "x").exists()


def test_refused_object_is_an_error_and_leaves_no_file(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"set/x": b"x"}
    bucket.fault = lambda key, wanted: DENIED
    with pytest.raises(LaunchError, match="s3://bucket/set/x: this node may not read it"):
        fetch_to(tmp_path / "data")
    assert names(tmp_path / "data") == set()


def test_code_with_which_s3_throttles_is_named_at_the_deadline(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"set/a": b"a"}
    bucket.fault = lambda key, wanted: Answer(503, b"<Error><Code>SlowDown</Code></Error>")
    late = r"^s3://bucket/set: not fetched in time \(--sync-timeout\); .*; S3 asks for fewer requests: SlowDown$"
    for timeout_s in (3.0, 60.0):  # on a busy machine the fetching process may take three seconds to start
        with pytest.raises(LaunchError) as caught:
            fetch_to(tmp_path / "data", timeout_s=timeout_s)
        if re.match(late, str(caught.value)):
            return
    raise AssertionError(str(caught.value))


def test_object_of_another_length_than_listed_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"set/x": b"listed"}
    bucket.fault = lambda key, wanted: Answer(200, b"new")
    with pytest.raises(LaunchError, match=r"data/x: 3 bytes arrived of 6; run the same line again"):
        fetch_to(tmp_path / "data")
    assert names(tmp_path / "data") == set()


def test_fetching_processes_end_with_their_parent(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"set/x": b"x"}
    has_asked, may_answer = Event(), Event()

    def block(key: str, wanted: str) -> None:
        has_asked.set()
        may_answer.wait(50)

    bucket.fault = block
    with ThreadPoolExecutor() as pool:
        fetching = pool.submit(fetch_to, tmp_path / "data")
        try:
            assert has_asked.wait(50)
            running = downloads(tmp_path / "home")
            (program,) = [pid for pid in running if parent(pid) == os.getpid()]
            assert len(running) > 1
            os.kill(program, signal.SIGKILL)
            wait_until(lambda: not downloads(tmp_path / "home"), "the end of all processes", timeout_s=20, every_s=0.01)
        finally:
            may_answer.set()
        assert str(fetching.exception(50)) == "s3://bucket/set: the download ended without a result"


def test_launch_says_how_much_came_and_how_fast(bucket: Bucket, cluster: ClusterWithHomes) -> None:
    bucket.objects = {"set/x": b"words\n"}
    line = ("--sync-s3", "s3://bucket/set", "data", "cat ~/data/x")
    # A session on a node has no variables of the launcher's shell.
    bucket.write_settings(cluster.homes["127.0.0.1"])
    first, again = (cluster.run(*line, hosts=["127.0.0.1"]) for _ in range(2))
    assert (first.code, first.stdout) == (0, b"127.0.0.1 [0] words\n")
    assert first.reason.startswith("launch: 1 file, 0.0 MB, fetched by 1 node in ")
    assert first.reason.endswith(" MB/s")
    assert (again.stdout, again.stderr) == (first.stdout, b"")


def downloads(home: Path) -> list[int]:
    """Return the processes that download for a user with this home directory."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if is_download(pid) and f"HOME={home}\0".encode() in variables(pid)]


def is_download(pid: int) -> bool:
    try:
        return b"launcher/runner/s3/" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
