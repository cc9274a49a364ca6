"""Test which epoch of a training run is its best: the same on all ranks, whichever has its checkpoint."""

from pathlib import Path
from typing import cast

import pytest

from tests.trainer.checkpoint.fake_store import (
    FakeStore,
    TwoRankBackend,
    from_rank_1,
    make_checkpoint,
    make_manager,
    resumable,
)
from trainer.backend import Backend
from trainer.checkpoint.best import Score
from trainer.checkpoint.manager import CheckpointManager
from trainer.checkpoint.resume import BestOfRank, RankReport
from trainer.progress import Progress


def resume_run(store: FakeStore, *, rank: int = 0, other: Score | None = None) -> tuple[CheckpointManager, Backend]:
    """Resume a run whose other rank has a checkpoint of this best epoch."""
    store.saved.append(make_checkpoint(Progress(run_started_at=5, epoch=1)))
    best = BestOfRank(True, other.accuracy) if other and other.run_started_at == 5 else BestOfRank(False, 0)
    bests = (0.0, 0.0, *best) if rank == 0 else (*best, 0.0, 0.0)
    backend = cast(Backend, TwoRankBackend(report=[0] * 12, best=bests, rank=rank))
    manager = make_manager(store, rank=rank)
    manager.begin_run(backend)
    return manager, backend


def save_four(store: FakeStore, manager: CheckpointManager, backend: Backend) -> list[float | None]:
    """Save after three epochs and once within the next; return the accuracies that were saved as the best."""
    for epoch, accuracy in enumerate((0.8, 0.7, 0.95), start=2):
        manager.save(backend, Progress(run_started_at=5, epoch=epoch), validation_accuracy=accuracy)
    manager.save(backend, Progress(run_started_at=5, epoch=5, samples=8))
    return store.bests


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
def test_every_rank_knows_the_best_epoch_of_any_rank(
    rank: int, own: Score | None, other: Score | None, bests: list[float]
) -> None:
    store = FakeStore()
    store.best_score = own
    assert save_four(store, *resume_run(store, rank=rank, other=other)) == bests


def test_new_run_does_not_read_the_best_score_from_s3() -> None:
    store = FakeStore()
    make_manager(store).begin_run(cast(Backend, TwoRankBackend()))
    assert not store.looked_in_s3
    resume_run(store)
    assert store.looked_in_s3


def write_final(
    store: FakeStore, manager: CheckpointManager, backend: Backend, directory: Path, *, accuracy: float
) -> None:
    store.prefix = str(directory / "net")
    manager.write_final(backend, validation_accuracy=accuracy)


@pytest.mark.parametrize(("accuracy", "bests"), [(0.5, []), (0.95, [0.95])])
def test_last_epoch_is_the_best_only_if_it_is_better(tmp_path: Path, accuracy: float, bests: list[float]) -> None:
    store = FakeStore()
    manager, backend = resume_run(store, other=Score(5, 0.9))
    write_final(store, manager, backend, tmp_path, accuracy=accuracy)
    assert (store.bests, store.uploaded_best) == (bests, Score(5, max(0.9, accuracy)))


@pytest.mark.parametrize(
    ("own", "accuracy", "warns"),
    [(None, 0.5, True), (Score(5, 0.5), 0.5, True), (Score(5, 0.9), 0.5, False), (Score(5, 0.95), 0.95, False)],
)
def test_rank_0_names_the_machine_that_has_the_best_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, own: Score | None, accuracy: float, warns: bool
) -> None:
    store = FakeStore()
    manager, backend = resume_run(store, other=Score(5, 0.9))
    write_final(store, manager, backend, tmp_path, accuracy=accuracy)
    store.best_score = own
    path = "/there/net-best.npz"
    manager.wait_for_final(cast(Backend, TwoRankBackend(best=from_rank_1(BestOfRank(True, 0.9)), messages=[path])))
    line = "the network of the best epoch, Validation-accuracy=0.900000, is not here but on rank 1's machine: "
    assert [record.getMessage() for record in caplog.records] == [f"{line}{path}"] * warns


def test_failed_write_of_the_best_is_not_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    manager, backend = resume_run(store, other=Score(5, 0.9))
    # It is better than the other rank's; the store has already warned that it could not be written.
    write_final(store, manager, backend, tmp_path, accuracy=0.95)
    manager.wait_for_final(cast(Backend, TwoRankBackend(best=from_rank_1(BestOfRank(True, 0.9)), messages=["/"])))
    assert not caplog.records


def test_rank_without_a_store_takes_part() -> None:
    manager = make_manager(None, rank=1)
    report = (*RankReport(run_started_at=5, epoch=1, samples=64), *RankReport())
    messages = resumable(Progress(run_started_at=5, epoch=1, samples=64))
    best = (*BestOfRank(True, 0.9), *BestOfRank(False, 0))
    manager.begin_run(cast(Backend, TwoRankBackend(report=report, messages=messages, best=best, rank=1)))
    backend = cast(Backend, TwoRankBackend(is_writing=[0], best=best, messages=["/there"], rank=1))
    manager.save(backend, Progress(run_started_at=5, epoch=2), validation_accuracy=0.8)
    manager.wait_for_final(backend)
