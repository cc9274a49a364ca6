from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest

from trainer.checkpoint import Checkpoint, Description
from trainer.checkpoints import Checkpoints
from trainer.config import TrainConfig
from trainer.engines import Asks, Engine, State
from trainer.errors import UsageError
from trainer.keeper import Keeper
from trainer.progress import Progress
from trainer.sampling import Shard

CONFIG = TrainConfig(num_epochs=3)
STATE = State(weights={"a": np.zeros(1)})


class Drawer:
    """Keeps checkpoints where a test can see them."""

    def __init__(self, progress: Progress | None = None, *, finished: float = 0) -> None:
        self.kept: list[Checkpoint] = [] if progress is None else [checkpoint(progress)]
        self.bests: list[float | None] = []
        self._best: Description | None = None
        self._finished = finished

    def newest(self) -> Checkpoint | None:
        return self.kept[-1] if self.kept else None

    def keep(self, take: Callable[[], Checkpoint], *, is_best: bool) -> None:
        self.kept.append(take())
        if is_best:
            self._best = self.kept[-1].description
            self.bests.append(self._best.validation_accuracy)

    def best(self) -> Description | None:
        return self._best

    def wait(self) -> None:
        pass

    def finished(self) -> float:
        return self._finished

    def forget(self) -> None:
        self.kept.clear()


class Others:
    """An engine whose other rank says what it was given."""

    def __init__(self, *sums: Sequence[float]) -> None:
        self._sums = list(sums)
        self.restored: list[tuple[State | None, int]] = []

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        others = self._sums.pop(0)
        return [own + other for own, other in zip(values, others, strict=True)]

    def restore(self, state: State | None, *, source: int) -> None:
        self.restored.append((state, source))

    def snapshot(self) -> Callable[[], State]:
        return lambda: STATE


def checkpoint(progress: Progress) -> Checkpoint:
    return Checkpoint(description=Description(settings=CONFIG.identity, progress=progress), state=STATE)


def checkpoints(drawer: Drawer, *, config: TrainConfig = CONFIG, clock: Sequence[float] = (0.0,) * 9) -> Checkpoints:
    times = iter(clock)
    return Checkpoints(config, shard=Shard(index=0, count=2), keeper=cast(Keeper, drawer), clock=lambda: next(times))


def begin(drawer: Drawer, others: Others, *, config: TrainConfig = CONFIG) -> Progress:
    return checkpoints(drawer, config=config).begin(cast(Engine, others))


def test_the_newest_place_of_all_ranks_is_taken() -> None:
    others = Others((0, 0, 0, 0, 5, 1, 64, 0), (0, 0, 0, 0, 0, 0, 5, 1, 64, 0.5, 60, 0))
    drawer = Drawer(Progress(started=5, epoch=1, samples=32))
    assert begin(drawer, others) == Progress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60)
    assert others.restored == [(None, 1)]


def test_ones_own_place_is_taken_when_the_other_has_only_an_earlier_training() -> None:
    own = Progress(started=5, epoch=1, samples=32, loss_sum=0.5, correct=30)
    others = Others((0, 0, 0, 0, 4, 2, 0, 0), (0, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0))
    assert begin(Drawer(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_without_any_the_training_begins_at_rank_0s_time() -> None:
    others = Others((0,) * 8, (0, 99))
    progress = begin(Drawer(), others)
    assert progress.started > 1.7e9
    assert progress == Progress(started=progress.started)
    # Its weights are everybody's.
    assert others.restored == [(None, 0)]


@pytest.mark.parametrize("by", ["this rank", "the other"])
def test_a_training_that_others_finished_is_over(by: str) -> None:
    ahead = 9e9
    drawer = Drawer(Progress(started=ahead, epoch=1), finished=ahead if by == "this rank" else 0)
    others = Others((0, 0, 0, 0, 5, 2, 0, 0 if by == "this rank" else ahead), (0, 0))
    progress = begin(drawer, others)
    assert (progress.epoch, others.restored, drawer.kept) == (0, [(None, 0)], [])
    assert progress.started > ahead


def test_a_training_after_the_finished_one_goes_on() -> None:
    own = Progress(started=5, epoch=1)
    others = Others((0, 0, 0, 0, 4, 2, 0, 4), (0,) * 12)
    assert begin(Drawer(own, finished=4), others) == own


def test_all_ranks_end_when_one_has_a_checkpoint_of_other_settings() -> None:
    others = Others((0, 0, 0, 0, 5, 1, 64, 0), (0, 0, 0, 0, 0, 0, 5, 1, 64, 0.5, 60, 1))
    with pytest.raises(UsageError, match="that rank 1 has a checkpoint of had other settings: --resume never"):
        begin(Drawer(), others)
    assert others.restored == []


def test_never_leaves_nothing_of_an_earlier_training() -> None:
    drawer = Drawer(Progress(started=5, epoch=1))
    begin(drawer, Others((0,) * 8, (0, 0)), config=TrainConfig(resume="never"))
    assert drawer.kept == []


def test_rank_0_asks_when_its_time_has_come_and_again_only_later() -> None:
    ours = checkpoints(Drawer(), config=TrainConfig(checkpoint_seconds=60), clock=(0, 59, 61, 61, 62, 121))
    assert [ours.asks(), ours.asks()] == [Asks(), Asks(save=True)]
    ours.keep(cast(Engine, Others()), Progress(started=1, samples=8))
    assert [ours.asks(), ours.asks()] == [Asks(), Asks(save=True)]


@pytest.mark.parametrize(
    ("progress", "config", "message"),
    [
        (Progress(started=5), TrainConfig(seed=1), "the interrupted training of checkpoints/lenet had seed 0, got 1"),
        (Progress(started=5, epoch=3), CONFIG, "num_epochs must be more than the 3 that the interrupted training"),
    ],
)
def test_fails_when_it_cannot_go_on(progress: Progress, config: TrainConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        begin(Drawer(progress), Others((0,) * 8, (0,) * 12), config=config)


@pytest.mark.parametrize(("of_training", "bests"), [(5, [0.9, 0.95]), (4, [0.9, 0.8, 0.95])])
def test_the_best_epoch_of_this_training_stays(of_training: float, bests: list[float]) -> None:
    before = Description(settings={}, progress=Progress(started=of_training), validation_accuracy=0.9)
    drawer = Drawer(Progress(started=5, epoch=1))
    ours = checkpoints(drawer)
    engine = cast(Engine, Others((0,) * 8, (0,) * 12))
    drawer.keep(lambda: Checkpoint(description=before, state=STATE), is_best=True)
    ours.begin(engine)
    for epoch, accuracy in enumerate((0.8, 0.7, 0.95), start=2):
        ours.keep(engine, Progress(started=5, epoch=epoch), validation_accuracy=accuracy)
    ours.keep(engine, Progress(started=5, epoch=5, samples=8))
    assert drawer.bests == bests
