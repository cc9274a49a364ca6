"""Test how files pass through a node."""

import asyncio
import io
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.detached.unit import LogSink
from launcher.errors import LaunchError
from launcher.runner.sync import relay as relaying
from launcher.runner.sync.byte_queue import NeighborLostError
from launcher.runner.sync.destination import Destination
from launcher.runner.sync.relay import Forwarder, relay
from launcher.sync import sender
from launcher.sync.certificate import client_context, new_sync_key, server_context
from launcher.sync.ignore import Ignore
from launcher.sync.manifest import Manifest, scan
from launcher.sync.request import SyncRequest
from launcher.sync.sender import sync
from launcher.sync.stream import RecordType, SourceStream, StreamRecord, read_records

NOTHING = Ignore([])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"a" * 3_000_000)
    (source / "b").write_bytes(b"b")
    return source


def stream_of(source: Path, manifest: Manifest) -> bytes:
    stream = SourceStream(source, manifest, [number for number, _ in manifest.files])
    return b"".join(iter(stream.next_block, b""))


def copy_of(manifest: Manifest, tmp_path: Path) -> tuple[Destination, set[int]]:
    copy = Destination(tmp_path / "copy", manifest, ignore=NOTHING, home=tmp_path)
    return copy, copy.prepare()


def contents(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}


def test_relay_writes_the_needed_files(source: Path, tmp_path: Path) -> None:
    manifest = scan(source, ignore=NOTHING)
    copy, needed = copy_of(manifest, tmp_path)
    assert needed == {0, 1}
    relay(io.BytesIO(stream_of(source, manifest)), None, destination=copy, needed={1})
    assert contents(tmp_path) == {"b": b"b"}


def test_damaged_file_is_not_kept(source: Path, tmp_path: Path) -> None:
    manifest = scan(source, ignore=NOTHING)
    copy, needed = copy_of(manifest, tmp_path)
    damaged = stream_of(source, manifest).replace(b"aaaa", b"aaca", 1)
    with pytest.raises(LaunchError, match="/copy/a: arrived damaged"):
        relay(io.BytesIO(damaged), None, destination=copy, needed=needed)
    assert contents(tmp_path) == {}


def test_file_cut_off_by_the_previous_node_is_not_kept(source: Path, tmp_path: Path) -> None:
    manifest = scan(source, ignore=NOTHING)
    copy, needed = copy_of(manifest, tmp_path)
    with pytest.raises(NeighborLostError, match="the previous node in the chain stopped sending"):
        relay(io.BytesIO(stream_of(source, manifest)[:400_000]), None, destination=copy, needed=needed)
    assert contents(tmp_path) == {}


def test_next_node_that_disconnects_counts_as_lost(source: Path, tmp_path: Path) -> None:
    manifest, identity = scan(source, ignore=NOTHING), new_sync_key()
    copy, _ = copy_of(manifest, tmp_path)
    ours, theirs = socket.socketpair()

    def vanish() -> None:
        with server_context(identity).wrap_socket(theirs, server_side=True) as after:
            after.recv(1)

    thread = threading.Thread(target=vanish)
    thread.start()
    with client_context(identity).wrap_socket(ours) as connection:
        onward = Forwarder(connection, forward={0})
        with pytest.raises(NeighborLostError, match="the next node in the chain stopped receiving"):
            relay(io.BytesIO(stream_of(source, manifest)), onward, destination=copy, needed=set())
    thread.join(60)


def test_node_that_needs_no_file_gets_heartbeats(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "HEARTBEAT_INTERVAL_S", 0.0)
    manifest, identity = scan(source, ignore=NOTHING), new_sync_key()
    copy, _ = copy_of(manifest, tmp_path)
    ours, theirs = socket.socketpair()
    heard: list[StreamRecord] = []

    def listen() -> None:
        with server_context(identity).wrap_socket(theirs, server_side=True) as after, after.makefile("rb") as stream:
            heard.extend(read_records(stream))

    thread = threading.Thread(target=listen)
    thread.start()
    with client_context(identity).wrap_socket(ours) as connection:
        onward = Forwarder(connection, forward={1})
        relay(io.BytesIO(stream_of(source, manifest)), onward, destination=copy, needed=set())
    thread.join(60)
    kinds = [record.kind for record in heard]
    first = kinds.index(RecordType.FILE)
    assert set(kinds[:first]) == {RecordType.ALIVE}
    assert kinds[first:] == [RecordType.FILE, RecordType.DATA, RecordType.END, RecordType.DONE]
    # An end record without a file is invalid.
    relay(io.BytesIO(b"".join(record.encode() for record in heard)), None, destination=copy, needed={1})
    assert contents(tmp_path) == {"b": b"b"}


def test_file_that_changed_is_cancelled(source: Path) -> None:
    manifest = scan(source, ignore=NOTHING)
    (source / "a").unlink()
    (source / "a").symlink_to("b")
    os.utime(source / "b", ns=(5, 5))
    stream = SourceStream(source, manifest, [0, 1])
    records = b"".join(iter(stream.next_block, b""))
    assert stream.changed == ["a", "b"]
    assert records.endswith(StreamRecord(RecordType.CANCELLED).encode() + StreamRecord(RecordType.DONE).encode())


def test_scan_can_be_stopped(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).touch()
    asked: list[str] = []

    def is_stopped() -> bool:
        asked.append("?")
        return len(asked) == 2

    with pytest.raises(LaunchError, match="was not scanned"):
        scan(tmp_path, ignore=NOTHING, is_stopped=is_stopped)
    assert len(asked) == 2


def test_ctrl_c_does_not_wait_for_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, called_off = threading.Event(), threading.Event()

    def endless(
        _source: Path, *, ignore: Ignore, excluded_directory: Path | None, is_stopped: Callable[[], bool]
    ) -> Manifest:
        looking.set()
        while not is_stopped():
            time.sleep(0.01)
        called_off.set()
        raise LaunchError("called off")

    monkeypatch.setattr(sender, "scan", endless)
    wanted = SyncRequest(directory="x")

    async def interrupted() -> None:
        running = asyncio.ensure_future(
            sync([], [], wanted, source=tmp_path, first_is_local=False, stderr=LogSink(tmp_path))
        )
        await asyncio.to_thread(looking.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    assert called_off.is_set()
