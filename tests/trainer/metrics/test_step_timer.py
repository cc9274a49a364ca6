"""Test the time of each phase, and the rank that the others wait for."""

import pytest

from trainer.metrics.step_timer import Phases, StepTimer, describe_slowest, format_shares, mean

EVEN = Phases(data=1.0, forward=2.0, backward=3.0, communication=4.0)


def test_phase_gets_the_time_since_the_previous_phase() -> None:
    times = iter([0.0, 10.0, 11.0, 13.0, 20.0, 21.0, 30.0])
    timer = StepTimer(clock=lambda: next(times))
    timer.start()
    timer.end("data")
    timer.end("forward")
    timer.start()
    timer.end("data")
    assert timer.read_and_reset() == Phases(data=2.0, forward=2.0)
    timer.end("optimizer")
    assert timer.read_and_reset() == Phases(optimizer=9.0)


def test_format_shares_prints_percentages() -> None:
    assert format_shares(EVEN) == "data=10% forward=20% backward=30% communication=40% optimizer=0%"
    assert format_shares(Phases()).startswith("data=0%")


def test_mean_is_over_all_ranks() -> None:
    assert mean([EVEN, EVEN._replace(data=3.0)]) == EVEN._replace(data=2.0)


@pytest.mark.parametrize(
    ("own", "output"),
    [
        ([1.0, 1.0, 1.0], None),
        ([1.0, 1.0, 1.05], None),
        ([1.0, 1.15, 1.0], "rank 1 takes 1.15 times as long as the median for its own work"),
        ([1.0, 2.0], "rank 1 takes 2.00 times as long as the median for its own work"),
        ([1.0, 1.2, 3.0, 1.2], "rank 2 takes 2.50 times as long as the median for its own work"),
    ],
)
def test_slowest_rank_is_found_by_its_time_without_communication(own: list[float], output: str | None) -> None:
    # The slowest waits least for the others.
    ranks = [Phases(backward=seconds, communication=9 - seconds) for seconds in own]
    assert describe_slowest(ranks) == output


def test_single_rank_is_never_slow() -> None:
    assert describe_slowest([EVEN]) is None
