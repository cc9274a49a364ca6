from dataclasses import replace
from typing import cast

import pytest

from tests.trainer.checkpoint.fake_store import CONFIG, STATE, FakeStore, TwoRankBackend, from_rank_1, make_manager
from trainer.backend import Backend, StopSaveFlags
from trainer.checkpoint.completion_marker import CompletionMarker
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.manager import SINGLE_PROCESS
from trainer.checkpoint.resume import RankReport, SourceProgress
from trainer.config.settings import TrainConfig
from trainer.distributed.world import World
from trainer.errors import UsageError
from trainer.progress import Progress
from trainer.timeouts import PAUSE_S

RESTARTED = World(job="j", restarts=1)
OVER = CompletionMarker(started=5.5, job="j", settings={**CONFIG.identity, "num_epochs": 3})
"""Of the training that CONFIG asks for, in that job."""


def begin(
    store: FakeStore, others: TwoRankBackend, *, config: TrainConfig = CONFIG, world: World = SINGLE_PROCESS
) -> Progress:
    progress = make_manager(store, config=config, world=world).resume_from_newest(cast(Backend, others))
    assert progress is not None
    return progress


def test_the_newest_place_of_all_ranks_is_taken() -> None:
    others = TwoRankBackend(
        from_rank_1(RankReport(started=5, epoch=1, samples=64)),
        from_rank_1(SourceProgress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60)),
    )
    store = FakeStore(Progress(started=5, epoch=1, samples=32))
    assert begin(store, others) == Progress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60)
    assert others.restored == [(None, 1)]


def test_ones_own_place_is_taken_when_the_other_has_only_an_earlier_training() -> None:
    own = Progress(started=5, epoch=1, samples=32, loss_sum=0.5, correct=30)
    others = TwoRankBackend(
        from_rank_1(RankReport(started=4, epoch=2)), from_rank_1(SourceProgress(started=4, epoch=2))
    )
    assert begin(FakeStore(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_a_checkpoint_of_a_version_without_a_setting_goes_on_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    own = Progress(started=5, epoch=1)
    store = FakeStore(own)
    description = store.saved[0].description
    settings = {name: value for name, value in description.settings.items() if name not in ("last_batch", "wd_all")}
    store.saved = [Checkpoint(description=replace(description, settings=settings), state=STATE)]
    assert begin(store, TwoRankBackend(from_rank_1(RankReport()), from_rank_1(SourceProgress()))) == own
    assert "predates --wd-all 0, --last-batch drop; using the current values" in caplog.text


def test_without_any_the_training_begins_at_rank_0s_time() -> None:
    others = TwoRankBackend(from_rank_1(RankReport()), (0, 99))
    progress = begin(FakeStore(), others)
    assert progress.started > 1.7e9
    assert progress == Progress(started=progress.started)
    # Its weights are everybody's.
    assert others.restored == [(None, 0)]


@pytest.mark.parametrize("by", ["this rank", "the other"])
def test_a_training_that_others_finished_is_over(by: str) -> None:
    newest_start = 9e9
    store = FakeStore(Progress(started=newest_start, epoch=1), finished=newest_start if by == "this rank" else 0)
    others = TwoRankBackend(
        from_rank_1(RankReport(started=5, epoch=2, completed=0 if by == "this rank" else newest_start)), (0, 0)
    )
    progress = begin(store, others)
    assert (progress.epoch, others.restored, store.saved) == (0, [(None, 0)], [])
    assert progress.started > newest_start


def test_a_training_after_the_finished_one_goes_on() -> None:
    own = Progress(started=5, epoch=1)
    others = TwoRankBackend(from_rank_1(RankReport(started=4, epoch=2, completed=4)), from_rank_1(SourceProgress()))
    assert begin(FakeStore(own, finished=4), others) == own


@pytest.mark.parametrize(
    ("marked", "end"), [("here", "here"), ("here", "there"), ("there", "here"), ("there", "there")]
)
def test_what_was_over_when_its_job_was_started_again_is_over_on_all_ranks(marked: str, end: str) -> None:
    # The one that was killed has a checkpoint, and no marker.
    other: RankReport
    if marked == "here":
        store, other = FakeStore(marker=OVER), RankReport(started=5.5, epoch=2, completed=4)
    else:
        store, other = (
            FakeStore(Progress(started=5.5, epoch=2), finished=4),
            RankReport(completed=5.5, completed_in_this_job=1),
        )
    store.final_of = 5.5 if end == "here" else 0
    others = TwoRankBackend(from_rank_1(other), [end == "there"])
    ours = make_manager(store, world=RESTARTED)
    assert ours.resume_from_newest(cast(Backend, others)) is None
    assert others.restored == []
    ours.finish()
    assert (store.marker(), store.saved) == (OVER, [])


def test_in_s3_what_was_over_is_there_for_every_rank() -> None:
    config = replace(CONFIG, model_prefix="s3://bucket/digits/net")
    over = replace(OVER, settings={**config.identity, "num_epochs": 3})
    assert (
        make_manager(FakeStore(marker=over), config=config, world=RESTARTED).resume_from_newest(
            cast(Backend, TwoRankBackend())
        )
        is None
    )


@pytest.mark.parametrize(
    ("marker", "world"),
    [
        (OVER, World(job="k", restarts=1)),
        (OVER, World(job="k")),
        # The same name for one job after another.
        (OVER, World(job="j")),
        (replace(OVER, job=""), World(restarts=1)),
        (replace(OVER, settings={**OVER.settings, "num_epochs": 2}), RESTARTED),
    ],
)
def test_another_training_of_the_same_name_begins_although_one_is_over(marker: CompletionMarker, world: World) -> None:
    store = FakeStore(marker=marker)
    store.final_of = 5.5
    progress = begin(store, TwoRankBackend(), world=world)
    assert (progress.epoch, progress.samples) == (0, 0)
    assert progress.started > 5.5
    # Nor is it over when its job is started again.
    again = begin(store, TwoRankBackend(), world=replace(world, restarts=2))
    assert (again.epoch, again.samples) == (0, 0)


def test_what_went_with_its_machine_is_trained_to_its_end_again_from_what_is_left() -> None:
    # This rank was killed before it wrote its marker; the other one has it, and a third had what the training was for.
    own = Progress(started=5.5, epoch=2)
    assert (
        begin(
            FakeStore(own),
            TwoRankBackend(from_rank_1(RankReport(completed=5.5, completed_in_this_job=1))),
            world=RESTARTED,
        )
        == own
    )


def test_all_ranks_end_when_one_has_a_checkpoint_of_other_settings() -> None:
    reason = "had --lr none, got 0.01"
    others = TwoRankBackend(
        from_rank_1(RankReport(started=5, epoch=1, samples=64)),
        from_rank_1(SourceProgress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60, is_refused=1)),
        message=reason,
    )
    with pytest.raises(UsageError, match=f"^{reason}$"):
        begin(FakeStore(), others)
    assert others.restored == []


IN_THE_MIDST = RankReport(started=9, epoch=1, samples=64, in_another_directory=1)
SAW_THE_END = RankReport(completed=9, in_another_directory=1)
BOTH = IN_THE_MIDST._replace(completed=5)
"""Reports of a rank in another directory, about another training than rank 0's."""


@pytest.mark.parametrize("other", [IN_THE_MIDST, SAW_THE_END])
def test_another_training_in_another_directory_does_not_touch_rank_0s(other: RankReport) -> None:
    own = Progress(started=5, epoch=1, samples=32)
    others = TwoRankBackend(from_rank_1(other))
    assert begin(FakeStore(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_the_same_training_in_another_directory_counts() -> None:
    others = TwoRankBackend(
        from_rank_1(RankReport(started=5, epoch=1, samples=64, in_another_directory=1)),
        from_rank_1(SourceProgress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60)),
    )
    assert begin(FakeStore(Progress(started=5, epoch=1)), others).samples == 64
    assert (
        begin(
            FakeStore(Progress(started=5, epoch=1)),
            TwoRankBackend(from_rank_1(RankReport(completed=5, in_another_directory=1)), (0, 0)),
        ).epoch
        == 0
    )


@pytest.mark.parametrize("other", [IN_THE_MIDST, BOTH])
def test_a_new_directory_does_not_go_on_with_what_others_hold(other: RankReport) -> None:
    others = TwoRankBackend(from_rank_1(other), message="~/old")
    with pytest.raises(
        UsageError, match=r"^rank 1 has the checkpoint of an interrupted .* in ~/old, which is not rank 0's"
    ):
        begin(FakeStore(), others)
    assert others.restored == []


def test_the_launcher_starting_the_job_again_goes_on_with_what_others_hold() -> None:
    others = TwoRankBackend(
        from_rank_1(RankReport(started=5, epoch=1, samples=64, in_another_directory=1)),
        from_rank_1(SourceProgress(started=5, epoch=1, samples=64, loss_sum=0.5, correct=60)),
    )
    assert begin(FakeStore(), others, world=World(restarts=1)).samples == 64


def test_never_leaves_nothing_of_an_earlier_training() -> None:
    store = FakeStore(Progress(started=5, epoch=1))
    begin(store, TwoRankBackend(from_rank_1(RankReport()), (0, 0)), config=TrainConfig(resume="never"))
    assert store.saved == []


def test_rank_0_asks_when_its_time_has_come_and_again_only_later() -> None:
    ours = make_manager(FakeStore(), config=TrainConfig(checkpoint_seconds=60), clock=(0, 59, 61, 61, 62, 121))
    assert [ours.flags(), ours.flags()] == [StopSaveFlags(), StopSaveFlags(save=True)]
    ours.save(cast(Backend, TwoRankBackend()), Progress(started=1, samples=8))
    assert [ours.flags(), ours.flags()] == [StopSaveFlags(), StopSaveFlags(save=True)]


@pytest.mark.parametrize(
    ("progress", "config", "message"),
    [
        (Progress(started=5), TrainConfig(seed=1), "the interrupted training of checkpoints/lenet had --seed 0, got 1"),
        (Progress(started=5, epoch=3), CONFIG, "--num-epochs must be more than the 3 that the interrupted training"),
    ],
)
def test_fails_when_it_cannot_go_on(progress: Progress, config: TrainConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        begin(
            FakeStore(progress), TwoRankBackend(from_rank_1(RankReport()), from_rank_1(SourceProgress())), config=config
        )


def test_who_shares_rank_0s_directory_leaves_it_to_rank_0() -> None:
    store = FakeStore(Progress(started=5, epoch=1))
    ours = make_manager(store, rank=1)
    others = TwoRankBackend(
        (*RankReport(started=5, epoch=1), *RankReport()), (*SourceProgress(started=5, epoch=1), *SourceProgress())
    )
    assert ours.resume_from_newest(cast(Backend, others), shared=True) == Progress(started=5, epoch=1)
    assert others.restored == [(None, 0)]
    ours.save(cast(Backend, others), Progress(started=5, epoch=2), validation_accuracy=0.8)
    ours.finish()
    assert (len(store.saved), store.marker()) == (1, CompletionMarker())


@pytest.mark.parametrize(("here", "there", "pauses"), [(False, 0, []), (True, 0, [PAUSE_S]), (False, 1, [PAUSE_S])])
def test_all_ranks_know_when_one_waits_for_its_checkpoint_before(here: bool, there: int, pauses: list[float]) -> None:
    store, others = FakeStore(), TwoRankBackend([there])
    store.is_writing = here
    make_manager(store).save(cast(Backend, others), Progress(started=1, samples=8))
    assert others.pauses == pauses
    assert len(store.saved) == 1
