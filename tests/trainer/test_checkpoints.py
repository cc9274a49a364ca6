from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from tests.trainer.drawer import CONFIG, NONE, STATE, Drawer, Others, checkpoints
from trainer.checkpoints import ALONE
from trainer.config import TrainConfig
from trainer.engines import Asks, Engine
from trainer.engines.patience import PAUSE_S
from trainer.errors import UsageError
from trainer.mark import Mark
from trainer.progress import Progress
from trainer.ranks import Ranks

RESTARTED = Ranks(job="j", restarts=1)
OVER = Mark(started=5.5, job="j", settings={**CONFIG.identity, "num_epochs": 3})
"""Of the training that CONFIG asks for, in that job."""


def begin(drawer: Drawer, others: Others, *, config: TrainConfig = CONFIG, ranks: Ranks = ALONE) -> Progress:
    progress = checkpoints(drawer, config=config, ranks=ranks).begin(cast(Engine, others))
    assert progress is not None
    return progress


def test_the_newest_place_of_all_ranks_is_taken() -> None:
    others = Others((*NONE, 5, 1, 64, 0, 0, 0), (*(0,) * 6, 5, 1, 64, 0.5, 60, 0))
    drawer = Drawer(Progress(started=5, epoch=1, samples=32))
    assert begin(drawer, others) == Progress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60)
    assert others.restored == [(None, 1)]


def test_ones_own_place_is_taken_when_the_other_has_only_an_earlier_training() -> None:
    own = Progress(started=5, epoch=1, samples=32, loss_sum=0.5, correct=30)
    others = Others((*NONE, 4, 2, 0, 0, 0, 0), (*(0,) * 6, 4, 2, 0, 0, 0, 0))
    assert begin(Drawer(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_without_any_the_training_begins_at_rank_0s_time() -> None:
    others = Others((*NONE, *NONE), (0, 99))
    progress = begin(Drawer(), others)
    assert progress.started > 1.7e9
    assert progress == Progress(started=progress.started)
    # Its weights are everybody's.
    assert others.restored == [(None, 0)]


@pytest.mark.parametrize("by", ["this rank", "the other"])
def test_a_training_that_others_finished_is_over(by: str) -> None:
    ahead = 9e9
    drawer = Drawer(Progress(started=ahead, epoch=1), finished=ahead if by == "this rank" else 0)
    others = Others((*NONE, 5, 2, 0, 0 if by == "this rank" else ahead, 0, 0), (0, 0))
    progress = begin(drawer, others)
    assert (progress.epoch, others.restored, drawer.kept) == (0, [(None, 0)], [])
    assert progress.started > ahead


def test_a_training_after_the_finished_one_goes_on() -> None:
    own = Progress(started=5, epoch=1)
    others = Others((*NONE, 4, 2, 0, 4, 0, 0), (0,) * 12)
    assert begin(Drawer(own, finished=4), others) == own


@pytest.mark.parametrize(
    ("marked", "end"), [("here", "here"), ("here", "there"), ("there", "here"), ("there", "there")]
)
def test_what_was_over_when_its_job_was_started_again_is_over_on_all_ranks(marked: str, end: str) -> None:
    # The one that was killed has a checkpoint, and no mark.
    other: tuple[float, ...]
    if marked == "here":
        drawer, other = Drawer(mark=OVER), (5.5, 2, 0, 4, 0, 0)
    else:
        drawer, other = Drawer(Progress(started=5.5, epoch=2), finished=4), (0, 0, 0, 5.5, 1, 0)
    drawer.end = 5.5 if end == "here" else 0
    others = Others((*NONE, *other), [end == "there"])
    ours = checkpoints(drawer, ranks=RESTARTED)
    assert ours.begin(cast(Engine, others)) is None
    assert others.restored == []
    ours.finish()
    assert (drawer.mark(), drawer.kept) == (OVER, [])


def test_in_s3_what_was_over_is_there_for_every_rank() -> None:
    config = replace(CONFIG, model_prefix="s3://bucket/digits/net")
    over = replace(OVER, settings={**config.identity, "num_epochs": 3})
    assert checkpoints(Drawer(mark=over), config=config, ranks=RESTARTED).begin(cast(Engine, Others())) is None


@pytest.mark.parametrize(
    ("mark", "ranks"),
    [
        (OVER, Ranks(job="k", restarts=1)),
        (OVER, Ranks(job="k")),
        # The same name for one job after another.
        (OVER, Ranks(job="j")),
        (replace(OVER, job=""), Ranks(restarts=1)),
        (replace(OVER, settings={**OVER.settings, "num_epochs": 2}), RESTARTED),
    ],
)
def test_another_training_of_the_same_name_begins_although_one_is_over(mark: Mark, ranks: Ranks) -> None:
    drawer = Drawer(mark=mark)
    drawer.end = 5.5
    progress = begin(drawer, Others(), ranks=ranks)
    assert (progress.epoch, progress.samples) == (0, 0)
    assert progress.started > 5.5
    # Nor is it over when its job is started again.
    again = begin(drawer, Others(), ranks=replace(ranks, restarts=2))
    assert (again.epoch, again.samples) == (0, 0)


def test_what_went_with_its_machine_is_trained_to_its_end_again_from_what_is_left() -> None:
    # This rank was killed before its mark; the other one has it, and a third had what the training was for.
    own = Progress(started=5.5, epoch=2)
    assert begin(Drawer(own), Others((*NONE, 0, 0, 0, 5.5, 1, 0)), ranks=RESTARTED) == own


def test_all_ranks_end_when_one_has_a_checkpoint_of_other_settings() -> None:
    reason = "had --lr none, got 0.01"
    others = Others((*NONE, 5, 1, 64, 0, 0, 0), (*(0,) * 6, 5, 1, 64, 0.5, 60, 1), [len(reason)], reason.encode())
    with pytest.raises(UsageError, match=f"^{reason}$"):
        begin(Drawer(), others)
    assert others.restored == []


OTHERS: Sequence[tuple[int, ...]] = [(9, 1, 64, 0, 0, 1), (0, 0, 0, 9, 0, 1), (9, 1, 64, 5, 0, 1)]
"""What a rank in another directory says: it was in the midst of another training, saw its end, or both."""


@pytest.mark.parametrize("other", OTHERS[:2])
def test_another_training_in_another_directory_does_not_touch_rank_0s(other: Sequence[int]) -> None:
    own = Progress(started=5, epoch=1, samples=32)
    others = Others((*NONE, *other))
    assert begin(Drawer(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_the_same_training_in_another_directory_counts() -> None:
    others = Others((*NONE, 5, 1, 64, 0, 0, 1), (*(0,) * 6, 5, 1, 64, 0.5, 60, 0))
    assert begin(Drawer(Progress(started=5, epoch=1)), others).samples == 64
    assert begin(Drawer(Progress(started=5, epoch=1)), Others((*NONE, 0, 0, 0, 5, 0, 1), (0, 0))).epoch == 0


@pytest.mark.parametrize("other", OTHERS[::2])
def test_a_new_directory_does_not_go_on_with_what_others_hold(other: Sequence[int]) -> None:
    others = Others((*NONE, *other), [5], b"~/old")
    with pytest.raises(
        UsageError, match=r"^rank 1 has the checkpoint of an interrupted .* in ~/old, which is not rank 0's"
    ):
        begin(Drawer(), others)
    assert others.restored == []


def test_the_launcher_starting_the_job_again_goes_on_with_what_others_hold() -> None:
    others = Others((*NONE, 5, 1, 64, 0, 0, 1), (*(0,) * 6, 5, 1, 64, 0.5, 60, 0))
    assert begin(Drawer(), others, ranks=Ranks(restarts=1)).samples == 64


def test_never_leaves_nothing_of_an_earlier_training() -> None:
    drawer = Drawer(Progress(started=5, epoch=1))
    begin(drawer, Others((*NONE, *NONE), (0, 0)), config=TrainConfig(resume="never"))
    assert drawer.kept == []


def test_rank_0_asks_when_its_time_has_come_and_again_only_later() -> None:
    ours = checkpoints(Drawer(), config=TrainConfig(checkpoint_seconds=60), clock=(0, 59, 61, 61, 62, 121))
    assert [ours.asks(), ours.asks()] == [Asks(), Asks(save=True)]
    ours.keep(cast(Engine, Others()), Progress(started=1, samples=8))
    assert [ours.asks(), ours.asks()] == [Asks(), Asks(save=True)]


@pytest.mark.parametrize(
    ("progress", "config", "message"),
    [
        (Progress(started=5), TrainConfig(seed=1), "the interrupted training of checkpoints/lenet had --seed 0, got 1"),
        (Progress(started=5, epoch=3), CONFIG, "--num-epochs must be more than the 3 that the interrupted training"),
    ],
)
def test_fails_when_it_cannot_go_on(progress: Progress, config: TrainConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        begin(Drawer(progress), Others((*NONE, *NONE), (0,) * 12), config=config)


def test_who_shares_rank_0s_directory_leaves_it_to_rank_0() -> None:
    drawer = Drawer(Progress(started=5, epoch=1))
    ours = checkpoints(drawer, rank=1)
    others = Others((5, 1, 0, 0, 0, 0, *NONE), (5, 1, 0, 0, 0, 0, *NONE))
    assert ours.begin(cast(Engine, others), shared=True) == Progress(started=5, epoch=1)
    assert others.restored == [(None, 0)]
    ours.keep(cast(Engine, others), Progress(started=5, epoch=2), validation_accuracy=0.8)
    ours.finish()
    assert (len(drawer.kept), drawer.mark()) == (1, Mark())


@pytest.mark.parametrize(("here", "there", "pauses"), [(False, 0, []), (True, 0, [PAUSE_S]), (False, 1, [PAUSE_S])])
def test_all_ranks_know_when_one_waits_for_its_checkpoint_before(here: bool, there: int, pauses: list[float]) -> None:
    drawer, others = Drawer(), Others([there])
    drawer.is_writing = here
    checkpoints(drawer).keep(cast(Engine, others), Progress(started=1, samples=8))
    assert others.pauses == pauses
    assert len(drawer.kept) == 1
