"""The runner's end of the connection, with pipes for the launcher and a clock of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from launcher.runner.runner_channel import MOST_PENDING, Link
from launcher.transport.protocol import HEADER, SIGN_OF_LIFE_S, SILENCE_S, Kind, encode


@dataclass
class Launcher:
    """The other end."""

    link: Link
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
    yield Launcher(link=Link(source=source, sink=sink, clock=lambda: now[0]), sends=sends, reads=reads, now=now)
    for fd in (source, sends, reads, sink):
        try:
            os.close(fd)
        except OSError:
            continue


def test_it_gives_a_sign_of_life_only_when_it_has_nothing_to_say(launcher: Launcher) -> None:
    assert launcher.link.keep_alive() == SIGN_OF_LIFE_S
    launcher.now[0] += 3
    launcher.link.send(Kind.STDOUT, b"x")
    assert launcher.read() == encode(Kind.STDOUT, b"x")
    launcher.now[0] += SIGN_OF_LIFE_S
    launcher.link.keep_alive()
    assert launcher.read() == encode(Kind.ALIVE, b"")


def test_a_launcher_that_says_nothing_is_gone_at_the_deadline(launcher: Launcher) -> None:
    launcher.now[0] += SILENCE_S - 1
    os.write(launcher.sends, b"\n")
    assert launcher.link.receive() == b"\n"
    launcher.now[0] += SILENCE_S - 1
    launcher.link.keep_alive()
    assert not launcher.link.over
    launcher.now[0] += 1
    assert launcher.link.keep_alive() > 0
    assert launcher.link.gone
    assert launcher.link.over


def test_a_launcher_that_closes_its_end_still_reads(launcher: Launcher) -> None:
    os.close(launcher.sends)
    launcher.link.receive()
    assert (launcher.link.over, launcher.link.gone) == (True, False)
    launcher.link.send(Kind.STDOUT, b"last")
    assert launcher.read().endswith(b"last")


def test_a_slow_launcher_gets_everything_and_nobody_waits(launcher: Launcher) -> None:
    payload = bytes(1 << 16)
    for _ in range(40):
        launcher.link.send(Kind.STDOUT, payload)
    assert launcher.link.full
    read = 0
    while launcher.link.pending:
        read += len(launcher.read())
        launcher.link.flush()
    assert not launcher.link.full
    assert MOST_PENDING < read <= 40 * (HEADER.size + len(payload))
    os.set_blocking(launcher.reads, False)
    read += len(launcher.read())
    assert read == 40 * (HEADER.size + len(payload))


def test_it_swallows_all_when_the_launcher_has_ended(launcher: Launcher) -> None:
    os.close(launcher.reads)
    launcher.link.send(Kind.STDOUT, b"x")
    assert launcher.link.gone
    launcher.link.send(Kind.STDOUT, b"x")
    assert not launcher.link.pending
