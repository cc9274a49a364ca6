"""Which epoch of a training is its best: the same on all ranks, whichever has its network."""

from pathlib import Path
from typing import cast

import pytest

from tests.trainer.drawer import NONE, Drawer, Others, checkpoint, checkpoints
from trainer.best import Score
from trainer.checkpoints import Checkpoints
from trainer.engines import Engine
from trainer.progress import Progress


def begun(drawer: Drawer, *, rank: int = 0, other: Score | None = None) -> tuple[Checkpoints, Engine]:
    """A training that goes on, in which the other rank has had this best epoch."""
    drawer.kept.append(checkpoint(Progress(started=5, epoch=1)))
    nothing = [0.0] * 2
    others = [1, other.accuracy] if other and other.started == 5 else nothing
    engine = cast(Engine, Others([0] * 12, [0] * 12, [*nothing, *others] if rank == 0 else [*others, *nothing]))
    ours = checkpoints(drawer, rank=rank)
    ours.begin(engine)
    return ours, engine


def bests_after(drawer: Drawer, ours: Checkpoints, engine: Engine) -> list[float | None]:
    for epoch, accuracy in enumerate((0.8, 0.7, 0.95), start=2):
        ours.keep(engine, Progress(started=5, epoch=epoch), validation_accuracy=accuracy)
    ours.keep(engine, Progress(started=5, epoch=5, samples=8))
    return drawer.bests


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("own", "other", "bests"),
    [
        (Score(5, 0.9), None, [0.95]),
        (None, Score(5, 0.9), [0.95]),
        (Score(5, 0.5), Score(5, 0.9), [0.95]),
        (Score(4, 0.9), Score(4, 0.9), [0.8, 0.95]),
        (None, None, [0.8, 0.95]),
    ],
)
def test_every_rank_keeps_the_best_epoch_of_this_training_whoever_has_had_it(
    rank: int, own: Score | None, other: Score | None, bests: list[float]
) -> None:
    drawer = Drawer()
    drawer.best_of = own
    assert bests_after(drawer, *begun(drawer, rank=rank, other=other)) == bests


def test_a_training_that_begins_does_not_ask_s3_for_its_best() -> None:
    drawer = Drawer()
    checkpoints(drawer).begin(cast(Engine, Others()))
    assert not drawer.asked
    begun(drawer)
    assert drawer.asked


def end(drawer: Drawer, ours: Checkpoints, engine: Engine, directory: Path, *, accuracy: float) -> None:
    drawer.prefix = str(directory / "net")
    ours.end(engine, validation_accuracy=accuracy)


@pytest.mark.parametrize(("accuracy", "bests"), [(0.5, []), (0.95, [0.95])])
def test_the_last_epoch_is_the_best_only_where_it_is(tmp_path: Path, accuracy: float, bests: list[float]) -> None:
    drawer = Drawer()
    ours, engine = begun(drawer, other=Score(5, 0.9))
    end(drawer, ours, engine, tmp_path, accuracy=accuracy)
    assert (drawer.bests, drawer.published) == (bests, Score(5, max(0.9, accuracy)))


@pytest.mark.parametrize(
    ("own", "accuracy", "said"),
    [(None, 0.5, True), (Score(5, 0.5), 0.5, True), (Score(5, 0.9), 0.5, False), (Score(5, 0.95), 0.95, False)],
)
def test_rank_0_says_where_the_best_is_when_its_machine_has_it_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, own: Score | None, accuracy: float, said: bool
) -> None:
    drawer = Drawer()
    ours, engine = begun(drawer, other=Score(5, 0.9))
    end(drawer, ours, engine, tmp_path, accuracy=accuracy)
    drawer.best_of = own
    path = b"/there/net-best.npz"
    ours.agree_on_end(cast(Engine, Others([0, 0, 1, 0.9], [len(path)], path)))
    line = "the network of the best epoch, Validation-accuracy=0.900000, is not here but on rank 1's machine: "
    assert [record.getMessage() for record in caplog.records] == [f"{line}{path.decode()}"] * said


def test_nobody_has_a_best_that_could_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    drawer = Drawer()
    ours, engine = begun(drawer, other=Score(5, 0.9))
    # Better, and a warning by itself.
    end(drawer, ours, engine, tmp_path, accuracy=0.95)
    ours.agree_on_end(cast(Engine, Others([0, 0, 1, 0.9], [1], b"/")))
    assert not caplog.records


def test_a_rank_that_keeps_nothing_agrees_too() -> None:
    ours = checkpoints(None, rank=1)
    ours.begin(cast(Engine, Others((5, 1, 64, 0, 0, 0, *NONE), (5, 1, 64, 0, 0, 0, *NONE), (1, 0.9, 0, 0))))
    engine = Others([0], [1, 0.9, 0, 0])
    ours.keep(cast(Engine, engine), Progress(started=5, epoch=2), validation_accuracy=0.8)
    ours.agree_on_end(cast(Engine, engine))
