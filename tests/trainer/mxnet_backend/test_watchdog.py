import threading

import pytest

from trainer.mxnet_backend.watchdog import Watchdog

DEADLINE_S = 10


class Ended:
    """Records the message with which the process would have ended."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.message = ""

    def __call__(self, message: str) -> None:
        self.message = message
        self.event.set()


@pytest.fixture
def ended() -> Ended:
    return Ended()


def test_watchdog_ends_a_process_that_waits_too_long(ended: Ended) -> None:
    with Watchdog(end=ended, poll_s=0.01, rendezvous_s=0.01).waiting("meeting 3 workers"):
        assert ended.event.wait(DEADLINE_S)
    assert ended.message == "meeting 3 workers failed, another rank ended or was not heard from for 0 s"


def test_step_timeout_applies_after_the_first_step(ended: Ended) -> None:
    watchdog = Watchdog(end=ended, poll_s=0.01, rendezvous_s=1000, step_s=0.01)
    watchdog.use_step_timeout()
    with watchdog.waiting("adding up"):
        assert ended.event.wait(DEADLINE_S)


def test_finished_wait_does_not_end_the_process(ended: Ended) -> None:
    watchdog = Watchdog(end=ended, poll_s=0.01, rendezvous_s=0.01)
    with watchdog.waiting("outer"):
        with watchdog.waiting("inner"):
            pass
        assert ended.event.wait(DEADLINE_S)
    assert ended.message.startswith("outer failed")


def test_watchdog_is_idle_after_the_block(ended: Ended) -> None:
    watchdog = Watchdog(end=ended, poll_s=0.01, rendezvous_s=0.01)
    with watchdog.waiting("adding up"):
        pass
    # This takes a few polls of the watchdog's thread.
    assert not ended.event.wait(0.1)


def test_more_s_extends_the_timeout(ended: Ended) -> None:
    with Watchdog(end=ended, poll_s=0.01, rendezvous_s=0.01).waiting("meeting", more_s=1000):
        assert not ended.event.wait(0.1)
