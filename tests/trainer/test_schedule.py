import pytest

from trainer.schedule import Rates, Schedule

ARTICLE = Schedule(start=0.1, peak=6.4, warmup_epochs=5, step_epochs=(30, 60))


@pytest.mark.parametrize(
    ("epoch", "trained", "rate"),
    [
        (0, 0, 0.1),
        (2, 0.5, 3.25),
        (4, 1, 6.4),
        (5, 0, 6.4),
        (29, 1, 6.4),
        (30, 0, 0.64),
        (60, 0.5, 0.064),
    ],
)
def test_warms_up_and_steps_down(epoch: int, trained: float, rate: float) -> None:
    assert ARTICLE.rate(epoch=epoch, trained=trained) == pytest.approx(rate)


def test_a_step_multiplies_by_the_factor_that_was_given() -> None:
    schedule = Schedule(start=1, peak=1, factor=0.5, step_epochs=(1, 2))
    assert [schedule.rate(epoch=epoch, trained=0) for epoch in range(4)] == [1, 0.5, 0.25, 0.25]


class Engine:
    def __init__(self) -> None:
        self.rates: list[float] = []

    def set_learning_rate(self, rate: float) -> None:
        self.rates.append(rate)


def test_an_engine_hears_of_changes_alone() -> None:
    engine, rates = Engine(), Rates(Schedule(start=0, peak=1, step_epochs=(2,)))
    for epoch in range(4):
        for trained in (0.5, 1):
            rates.set(engine, epoch=epoch, trained=trained)
    assert engine.rates == [1, 0.1]
