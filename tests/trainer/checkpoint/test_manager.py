"""Test that all ranks agree on the checkpoint from which they resume."""

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.trainer.checkpoint.fake_store import (
    CONFIG,
    STATE,
    FakeStore,
    TwoRankBackend,
    from_rank_1,
    make_manager,
    resumable,
)
from trainer.backend import Backend, StepFlags
from trainer.checkpoint.completion_marker import CompletionMarker
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.manager import SINGLE_PROCESS
from trainer.checkpoint.resume import RankReport
from trainer.config.settings import TrainConfig
from trainer.distributed.world import World
from trainer.errors import UsageError
from trainer.progress import Progress

RESTARTED = World(job_id="j", restart_count=1)
OVER = CompletionMarker(run_started_at=5.5, job_id="j", settings={**CONFIG.settings_fixed_on_resume, "num_epochs": 3})
"""Marker of a completed run with CONFIG in that job."""


def begin(
    store: FakeStore, others: TwoRankBackend, *, config: TrainConfig = CONFIG, world: World = SINGLE_PROCESS
) -> Progress:
    progress = make_manager(store, config=config, world=world).begin_run(cast(Backend, others))
    assert progress is not None
    return progress


def test_newest_position_of_all_ranks_is_resumed() -> None:
    others = TwoRankBackend(
        report=from_rank_1(RankReport(run_started_at=5, epoch=1, samples=64)),
        messages=resumable(Progress(run_started_at=5, epoch=1, samples=64, loss_sum=0.5, correct=60)),
    )
    store = FakeStore(Progress(run_started_at=5, epoch=1, samples=32))
    assert begin(store, others) == Progress(run_started_at=5, epoch=1, samples=64, loss_sum=0.5, correct=60)
    assert others.restored == [(None, 1)]


def test_own_position_beats_an_earlier_run_of_another_rank() -> None:
    own = Progress(run_started_at=5, epoch=1, samples=32, loss_sum=0.5, correct=30)
    others = TwoRankBackend(
        report=from_rank_1(RankReport(run_started_at=4, epoch=2)),
    )
    assert begin(FakeStore(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_checkpoint_without_a_new_setting_resumes_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    own = Progress(run_started_at=5, epoch=1)
    store = FakeStore(own)
    metadata = store.saved[0].metadata
    settings = {name: value for name, value in metadata.settings.items() if name not in ("last_batch", "wd_all")}
    store.saved = [Checkpoint(metadata=replace(metadata, settings=settings), state=STATE)]
    assert begin(store, TwoRankBackend()) == own
    assert "predates --wd-all 0, --last-batch drop; using the current values" in caplog.text


def test_changed_data_since_the_checkpoint_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    make_manager(store, data_versions=("1", "2")).save(
        cast(Backend, TwoRankBackend(is_writing=(0,))), Progress(run_started_at=5, epoch=1)
    )
    for versions in (("1", "2"), ("1", "3")):
        others = TwoRankBackend()
        make_manager(store, data_versions=versions).begin_run(cast(Backend, others))
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("the data in S3 has changed since the checkpoint was written: its ETags were 1 2, are 1 3; ")


def test_new_run_starts_at_rank_0s_time() -> None:
    first, second = TwoRankBackend(), TwoRankBackend(rank=1, messages=[99])
    own = begin(FakeStore(), first)
    assert own.run_started_at > 1.7e9
    assert own == Progress(run_started_at=own.run_started_at)
    sent = make_manager(FakeStore(), rank=1).begin_run(cast(Backend, second))
    assert sent == Progress(run_started_at=99)
    # All ranks get its weights.
    assert first.restored == second.restored == [(None, 0)]


@pytest.mark.parametrize("by", ["this rank", "the other"])
def test_run_completed_on_another_rank_is_not_resumed(by: str) -> None:
    newest_start = 9e9
    store = FakeStore(Progress(run_started_at=newest_start, epoch=1), finished=newest_start if by == "this rank" else 0)
    others = TwoRankBackend(
        report=from_rank_1(
            RankReport(run_started_at=5, epoch=2, completed_run_started_at=0 if by == "this rank" else newest_start)
        ),
    )
    progress = begin(store, others)
    assert (progress.epoch, others.restored, store.saved) == (0, [(None, 0)], [])
    assert progress.run_started_at > newest_start


def test_run_after_a_completed_one_is_resumed() -> None:
    own = Progress(run_started_at=5, epoch=1)
    others = TwoRankBackend(
        report=from_rank_1(RankReport(run_started_at=4, epoch=2, completed_run_started_at=4)),
    )
    assert begin(FakeStore(own, finished=4), others) == own


MARKED = ({"marker": OVER}, RankReport(run_started_at=5.5, epoch=2, completed_run_started_at=4))
OTHER_MARKED = (
    {"progress": Progress(run_started_at=5.5, epoch=2), "finished": 4},
    RankReport(completed_run_started_at=5.5, completed_before_restart=True),
)
"""Contents of the store of this rank, and the other's report: one was killed with a checkpoint and without a marker."""


@pytest.mark.parametrize(
    ("contents", "other", "final_run_started_at", "other_has_final"),
    [
        pytest.param(*MARKED, 5.5, False, id="marker and final checkpoint on this rank"),
        pytest.param(*MARKED, 0.0, True, id="marker on this rank, final checkpoint on the other"),
        pytest.param(*OTHER_MARKED, 5.5, False, id="marker on the other rank, final checkpoint on this one"),
        pytest.param(*OTHER_MARKED, 0.0, True, id="marker and final checkpoint on the other rank"),
    ],
)
def test_completed_run_of_a_restarted_job_ends_on_all_ranks(
    contents: dict[str, Any], other: RankReport, final_run_started_at: float, other_has_final: bool
) -> None:
    store, others = FakeStore(**contents), TwoRankBackend(report=from_rank_1(other), has_final=[other_has_final])
    store.final_run_started_at = final_run_started_at
    manager = make_manager(store, world=RESTARTED)
    assert manager.begin_run(cast(Backend, others)) is None
    assert others.restored == []
    manager.finish()
    assert (store.marker(), store.saved) == (OVER, [])


def test_final_checkpoint_in_s3_counts_for_every_rank() -> None:
    config = replace(CONFIG, model_prefix="s3://bucket/digits/net")
    over = replace(OVER, settings={**config.settings_fixed_on_resume, "num_epochs": 3})
    manager = make_manager(FakeStore(marker=over), config=config, world=RESTARTED)
    assert manager.begin_run(cast(Backend, TwoRankBackend())) is None


@pytest.mark.parametrize(
    ("marker", "world"),
    [
        (OVER, World(job_id="k", restart_count=1)),
        (OVER, World(job_id="k")),
        # The second job has the name of the first.
        (OVER, World(job_id="j")),
        (replace(OVER, job_id=""), World(restart_count=1)),
        (replace(OVER, settings={**OVER.settings, "num_epochs": 2}), RESTARTED),
    ],
)
def test_new_job_of_the_same_name_starts_a_new_run(marker: CompletionMarker, world: World) -> None:
    store = FakeStore(marker=marker)
    store.final_run_started_at = 5.5
    progress = begin(store, TwoRankBackend(), world=world)
    assert (progress.epoch, progress.samples) == (0, 0)
    assert progress.run_started_at > 5.5
    # A restart of the second job does not count it as completed either.
    again = begin(store, TwoRankBackend(), world=replace(world, restart_count=2))
    assert (again.epoch, again.samples) == (0, 0)


def test_run_resumes_if_its_final_checkpoint_was_lost_with_its_machine() -> None:
    # This rank was killed before it wrote its marker. Another rank has a marker; a third had the final checkpoint.
    own = Progress(run_started_at=5.5, epoch=2)
    assert (
        begin(
            FakeStore(own),
            TwoRankBackend(report=from_rank_1(RankReport(completed_run_started_at=5.5, completed_before_restart=True))),
            world=RESTARTED,
        )
        == own
    )


def test_checkpoint_with_other_settings_on_one_rank_ends_all_ranks() -> None:
    reason = "had --lr none, got 0.01"
    others = TwoRankBackend(
        report=from_rank_1(RankReport(run_started_at=5, epoch=1, samples=64)),
        messages=[reason],
    )
    with pytest.raises(UsageError, match=f"^{reason}$"):
        begin(FakeStore(), others)
    assert others.restored == []


IN_THE_MIDST = RankReport(run_started_at=9, epoch=1, samples=64, in_another_directory=True)
SAW_THE_END = RankReport(completed_run_started_at=9, in_another_directory=True)
BOTH = IN_THE_MIDST._replace(completed_run_started_at=5)
"""Reports of a rank in another directory, about other runs than rank 0's."""


@pytest.mark.parametrize("other", [IN_THE_MIDST, SAW_THE_END])
def test_other_run_in_another_directory_does_not_affect_rank_0s(other: RankReport) -> None:
    own = Progress(run_started_at=5, epoch=1, samples=32)
    others = TwoRankBackend(report=from_rank_1(other))
    assert begin(FakeStore(own), others) == own
    assert others.restored == [(STATE, 0)]


def test_checkpoint_of_the_same_run_in_another_directory_is_used() -> None:
    others = TwoRankBackend(
        report=from_rank_1(RankReport(run_started_at=5, epoch=1, samples=64, in_another_directory=True)),
        messages=resumable(Progress(run_started_at=5, epoch=1, samples=64, loss_sum=0.5, correct=60)),
    )
    assert begin(FakeStore(Progress(run_started_at=5, epoch=1)), others).samples == 64
    assert (
        begin(
            FakeStore(Progress(run_started_at=5, epoch=1)),
            TwoRankBackend(report=from_rank_1(RankReport(completed_run_started_at=5, in_another_directory=True))),
        ).epoch
        == 0
    )


@pytest.mark.parametrize("other", [IN_THE_MIDST, BOTH])
def test_new_directory_of_rank_0_does_not_resume_others_checkpoints(other: RankReport) -> None:
    others = TwoRankBackend(report=from_rank_1(other), messages=["~/old"])
    with pytest.raises(
        UsageError, match=r"^rank 1 has the checkpoint of an interrupted .* in ~/old, which is not rank 0's"
    ):
        begin(FakeStore(), others)
    assert others.restored == []


def test_restarted_job_resumes_others_checkpoints() -> None:
    others = TwoRankBackend(
        report=from_rank_1(RankReport(run_started_at=5, epoch=1, samples=64, in_another_directory=True)),
        messages=resumable(Progress(run_started_at=5, epoch=1, samples=64, loss_sum=0.5, correct=60)),
    )
    assert begin(FakeStore(), others, world=World(restart_count=1)).samples == 64


def test_resume_never_deletes_an_earlier_runs_checkpoints() -> None:
    store = FakeStore(Progress(run_started_at=5, epoch=1))
    begin(store, TwoRankBackend(), config=TrainConfig(resume="never"))
    assert store.saved == []


def test_rank_0_requests_a_save_at_each_interval() -> None:
    manager = make_manager(FakeStore(), config=TrainConfig(checkpoint_seconds=60), clock=(0, 59, 61, 61, 62, 121))
    assert [manager.flags(), manager.flags()] == [StepFlags(), StepFlags(save=True)]
    manager.save(cast(Backend, TwoRankBackend()), Progress(run_started_at=1, samples=8))
    assert [manager.flags(), manager.flags()] == [StepFlags(), StepFlags(save=True)]


@pytest.mark.parametrize(
    ("progress", "config", "message"),
    [
        (
            Progress(run_started_at=5),
            TrainConfig(seed=1),
            "the interrupted run of checkpoints/lenet had --seed 0, got 1",
        ),
        (Progress(run_started_at=5, epoch=3), CONFIG, "--num-epochs must be more than the 3 that the interrupted run"),
    ],
)
def test_impossible_resume_is_reported(progress: Progress, config: TrainConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        begin(FakeStore(progress), TwoRankBackend(), config=config)


def test_rank_sharing_rank_0s_directory_does_not_write() -> None:
    store = FakeStore(Progress(run_started_at=5, epoch=1))
    manager = make_manager(store, rank=1)
    others = TwoRankBackend(
        report=(*RankReport(run_started_at=5, epoch=1), *RankReport()),
        messages=resumable(Progress(run_started_at=5, epoch=1)),
        rank=1,
    )
    assert manager.begin_run(cast(Backend, others), shares_rank_0_directory=True) == Progress(run_started_at=5, epoch=1)
    assert others.restored == [(None, 0)]
    manager.save(cast(Backend, others), Progress(run_started_at=5, epoch=2), validation_accuracy=0.8)
    manager.finish()
    assert (len(store.saved), store.marker()) == (1, CompletionMarker())
