"""The runner's end of the connection, with pipes for the launcher and a clock of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from launcher.runner.runner_channel import MOST_PENDING, RunnerChannel
from launcher.transport.protocol import HEADER, HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, FrameType, encode


@dataclass
class Launcher:
    """The other end."""

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


def test_it_gives_a_sign_of_life_only_when_it_has_nothing_to_say(launcher: Launcher) -> None:
    assert launcher.channel.keep_alive() == HEARTBEAT_INTERVAL_S
    launcher.now[0] += 3
    launcher.channel.send(FrameType.STDOUT, b"x")
    assert launcher.read() == encode(FrameType.STDOUT, b"x")
    launcher.now[0] += HEARTBEAT_INTERVAL_S
    launcher.channel.keep_alive()
    assert launcher.read() == encode(FrameType.ALIVE, b"")


def test_a_launcher_that_says_nothing_is_gone_at_the_deadline(launcher: Launcher) -> None:
    launcher.now[0] += HEARTBEAT_TIMEOUT_S - 1
    os.write(launcher.sends, b"\n")
    assert launcher.channel.receive() == b"\n"
    launcher.now[0] += HEARTBEAT_TIMEOUT_S - 1
    launcher.channel.keep_alive()
    assert not launcher.channel.over
    launcher.now[0] += 1
    assert launcher.channel.keep_alive() > 0
    assert launcher.channel.gone
    assert launcher.channel.over


def test_a_launcher_that_closes_its_end_still_reads(launcher: Launcher) -> None:
    os.close(launcher.sends)
    launcher.channel.receive()
    assert (launcher.channel.over, launcher.channel.gone) == (True, False)
    launcher.channel.send(FrameType.STDOUT, b"last")
    assert launcher.read().endswith(b"last")


def test_a_slow_launcher_gets_everything_and_nobody_waits(launcher: Launcher) -> None:
    payload = bytes(1 << 16)
    for _ in range(40):
        launcher.channel.send(FrameType.STDOUT, payload)
    assert launcher.channel.full
    read = 0
    while launcher.channel.pending:
        read += len(launcher.read())
        launcher.channel.flush()
    assert not launcher.channel.full
    assert MOST_PENDING < read <= 40 * (HEADER.size + len(payload))
    os.set_blocking(launcher.reads, False)
    read += len(launcher.read())
    assert read == 40 * (HEADER.size + len(payload))


def test_it_swallows_all_when_the_launcher_has_ended(launcher: Launcher) -> None:
    os.close(launcher.reads)
    launcher.channel.send(FrameType.STDOUT, b"x")
    assert launcher.channel.gone
    launcher.channel.send(FrameType.STDOUT, b"x")
    assert not launcher.channel.pending
