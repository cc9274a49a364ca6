"""Test the runner's end of the connection, with pipes to represent the launcher and a separate clock."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from launcher.runner.runner_channel import MAX_PENDING, RunnerChannel
from launcher.transport.protocol import HEADER, HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, FrameType, encode


@dataclass
class Launcher:
    """The launcher's end of the pipes."""

    channel: RunnerChannel
    sends: int
    reads: int
    now: list[float]

    def read(self) -> bytes:
        return os.read(self.reads, 1 << 20)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    source, sends = os.pipe()
    reads, sink = os.pipe()
    now = [100.0]
    yield Launcher(
        channel=RunnerChannel(source=source, sink=sink, clock=lambda: now[0]), sends=sends, reads=reads, now=now
    )
    for fd in (source, sends, reads, sink):
        try:
            os.close(fd)
        except OSError:
            continue


def test_channel_sends_heartbeats_only_while_it_sends_nothing_else(launcher: Launcher) -> None:
    assert launcher.channel.keep_alive() == HEARTBEAT_INTERVAL_S
    launcher.now[0] += 3
    launcher.channel.send(FrameType.STDOUT, b"x")
    assert launcher.read() == encode(FrameType.STDOUT, b"x")
    launcher.now[0] += HEARTBEAT_INTERVAL_S
    launcher.channel.keep_alive()
    assert launcher.read() == encode(FrameType.HEARTBEAT, b"")


def test_silent_launcher_counts_as_lost_at_the_deadline(launcher: Launcher) -> None:
    launcher.now[0] += HEARTBEAT_TIMEOUT_S - 1
    os.write(launcher.sends, b"\n")
    assert launcher.channel.receive() == b"\n"
    launcher.now[0] += HEARTBEAT_TIMEOUT_S - 1
    launcher.channel.keep_alive()
    assert not launcher.channel.stop_requested
    launcher.now[0] += 1
    assert launcher.channel.keep_alive() > 0
    assert launcher.channel.reader_gone
    assert launcher.channel.stop_requested


def test_launcher_that_closes_its_end_still_reads(launcher: Launcher) -> None:
    os.close(launcher.sends)
    launcher.channel.receive()
    assert (launcher.channel.stop_requested, launcher.channel.reader_gone) == (True, False)
    launcher.channel.send(FrameType.STDOUT, b"last")
    assert launcher.read().endswith(b"last")


def test_slow_launcher_gets_everything_and_the_runner_does_not_block(launcher: Launcher) -> None:
    payload = bytes(1 << 16)
    for _ in range(40):
        launcher.channel.send(FrameType.STDOUT, payload)
    assert launcher.channel.is_full
    read = 0
    while launcher.channel.has_pending:
        read += len(launcher.read())
        launcher.channel.flush()
    assert not launcher.channel.is_full
    assert MAX_PENDING < read <= 40 * (HEADER.size + len(payload))
    os.set_blocking(launcher.reads, False)
    read += len(launcher.read())
    assert read == 40 * (HEADER.size + len(payload))


def test_channel_discards_frames_after_the_launchers_end(launcher: Launcher) -> None:
    os.close(launcher.reads)
    launcher.channel.send(FrameType.STDOUT, b"x")
    assert launcher.channel.reader_gone
    launcher.channel.send(FrameType.STDOUT, b"x")
    assert not launcher.channel.has_pending
