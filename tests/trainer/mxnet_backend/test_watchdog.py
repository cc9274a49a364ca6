"""Test that a process that waits too long for other ranks ends."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.waiting import wait_until
from trainer.mxnet_backend.watchdog import Wait, Watchdog

DEADLINE_S = 60
FEW_POLLS_S = 0.1
"""Time of a few polls of the watchdog's thread."""


class Ended:
    """Records the message with which the process would have ended."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.message = ""

    def __call__(self, message: str) -> None:
        self.message = message
        self.event.set()


class Clock:
    """Advances only when a test sets it, so that no test depends on the machine's speed."""

    now = 0.0
    reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now

    def await_reads(self, count: int) -> None:
        """Wait until the watchdog has read the time so often."""
        enough = self.reads + count
        wait_until(lambda: self.reads >= enough, f"{count} polls", timeout_s=DEADLINE_S, every_s=0.01)


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def clock() -> Clock:
    return Clock()


Start = Callable[..., Watchdog]


@pytest.fixture
def start(ended: Ended, clock: Clock) -> Iterator[Start]:
    """Return a function that starts a watchdog, whose thread ends with the test."""
    made: list[Watchdog] = []

    def start(**times: float) -> Watchdog:
        made.append(Watchdog(end=ended, poll_s=0.01, clock=clock, **times))
        return made[-1]

    yield start
    [watchdog] = made
    watchdog._wait = Wait(deadline=clock.now - 1, timeout_s=0.0, action="the test's end")
    assert ended.event.wait(DEADLINE_S)


def test_watchdog_ends_a_process_that_waits_too_long(start: Start, ended: Ended, clock: Clock) -> None:
    with start(rendezvous_timeout_s=5.0).waiting("rendezvous of 3 workers"):
        clock.now = 4.9
        clock.await_reads(3)
        assert not ended.event.is_set()
        clock.now = 5.1
        assert ended.event.wait(DEADLINE_S)
    assert ended.message == "rendezvous of 3 workers failed: another rank ended, or was silent for 5 s"


def test_step_timeout_applies_after_the_first_step(start: Start, ended: Ended, clock: Clock) -> None:
    watchdog = start(rendezvous_timeout_s=1000.0, step_timeout_s=5.0)
    watchdog.use_step_timeout()
    with watchdog.waiting("adding up"):
        clock.now = 6.0
        assert ended.event.wait(DEADLINE_S)


def test_finished_wait_does_not_end_the_process(start: Start, ended: Ended, clock: Clock) -> None:
    watchdog = start(rendezvous_timeout_s=5.0)
    with watchdog.waiting("outer"):
        with watchdog.waiting("inner"):
            pass
        clock.now = 6.0
        assert ended.event.wait(DEADLINE_S)
    assert ended.message.startswith("outer failed")


def test_watchdog_is_idle_after_the_block(start: Start, ended: Ended, clock: Clock) -> None:
    with start(rendezvous_timeout_s=5.0).waiting("adding up"):
        pass
    clock.now = 6.0
    assert not ended.event.wait(FEW_POLLS_S)


def test_argument_more_s_extends_the_timeout(start: Start, ended: Ended, clock: Clock) -> None:
    with start(rendezvous_timeout_s=5.0).waiting("meeting", more_s=1000):
        clock.now = 1004.0
        clock.await_reads(3)
        assert not ended.event.is_set()
