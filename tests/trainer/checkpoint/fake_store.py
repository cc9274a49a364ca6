"""Fake a store and another rank for tests of the checkpoint manager."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from trainer.backend import TrainingState
from trainer.checkpoint.best import Score
from trainer.checkpoint.completion_marker import CompletionMarker
from trainer.checkpoint.format import Checkpoint, CheckpointMetadata, load_checkpoint
from trainer.checkpoint.manager import SINGLE_PROCESS, CheckpointManager
from trainer.checkpoint.store import CheckpointStore
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.progress import Progress

CONFIG = TrainConfig(num_epochs=3)
STATE = TrainingState(weights={"a": np.zeros(1)})
Row = TypeVar("Row", bound=tuple[float, ...])


class FakeStore:
    """Keeps checkpoints in memory."""

    def __init__(
        self, progress: Progress | None = None, *, finished: float = 0, marker: CompletionMarker | None = None
    ) -> None:
        self.saved: list[Checkpoint] = [] if progress is None else [make_checkpoint(progress)]
        self.bests: list[float | None] = []
        self.looked_in_s3 = False
        self.uploaded_best: Score | None = None
        self.best_score: Score | None = None
        self.prefix = "net"
        self.best_path = Path("net-best.npz")
        self.is_writing = False
        self._marker = marker or CompletionMarker(run_started_at=finished)
        self.final_run_started_at = 0.0
        """Start time of the final checkpoint's run; 0 without one."""

    def load_newest(self) -> Checkpoint | None:
        return self.saved[-1] if self.saved else None

    def save(self, take: Callable[[], Checkpoint], *, is_best: bool) -> None:
        self.saved.append(take())
        if is_best:
            self.bests.append(self.saved[-1].metadata.validation_accuracy)

    def read_best_score_from_s3(self) -> None:
        self.looked_in_s3 = True

    def best_accuracy(self, *, run_started_at: float) -> float | None:
        return (
            self.best_score.accuracy if self.best_score and self.best_score.run_started_at == run_started_at else None
        )

    def save_best(self, path: Path) -> None:
        self.bests.append(load_checkpoint(path).metadata.validation_accuracy)

    def upload_final(self, path: Path, *, best: Score) -> str:
        self.uploaded_best = best
        return str(path)

    def wait_until_written(self) -> None:
        pass

    def marker(self) -> CompletionMarker:
        return self._marker

    def set_marker(self, marker: CompletionMarker) -> None:
        self._marker = marker

    def is_from_run(self, path: Path, *, run_started_at: float) -> bool:
        return path == Path("net-0003.npz") and run_started_at == self.final_run_started_at

    def delete_resume_checkpoints(self) -> None:
        self.saved.clear()


class TwoRankBackend:
    """A backend whose other rank adds a row to each sum in turn, and broadcasts the given messages in turn.

    The rows are named after what the manager sums, and used in its order: to resume, it sums ``report``, ``has_final``
    only if the run had completed before a restart, and ``best`` only if it restores a position within a run; then
    ``is_writing`` in each save, and ``best`` at the end. Pass only the rows of sums that the test causes. After the
    last row come zeros, which are also the report of a rank without a checkpoint.
    """

    def __init__(
        self,
        *,
        report: Sequence[float] = (),
        has_final: Sequence[float] = (),
        is_writing: Sequence[float] = (),
        best: Sequence[float] = (),
        messages: Iterable[Any] = (),
        rank: int = 0,
    ) -> None:
        self._rows = [row for row in (report, has_final, is_writing, best) if row]
        self._messages = iter(messages)
        self._rank = rank
        self.restored: list[tuple[TrainingState | None, int]] = []
        self.timeouts: list[float] = []

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        others = self._rows.pop(0) if self._rows else [0] * len(values)
        return [own + other for own, other in zip(values, others, strict=True)]

    def broadcast_object(self, value: Any, *, source: int) -> Any:
        return value if source == self._rank else next(self._messages)

    def restore(self, state: TrainingState | None, *, source: int) -> None:
        self.restored.append((state, source))

    def set_timeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def snapshot(self) -> Callable[[], TrainingState]:
        return lambda: STATE

    def state(self) -> TrainingState:
        return STATE


def from_rank_1(row: Row) -> tuple[float, ...]:
    """Return rank 1's contribution to an all_gather of these rows: zeros for rank 0, which is this rank."""
    return (*[0.0] * len(row), *row)


def resumable(progress: Progress) -> list[Any]:
    """Return the messages of a rank whose checkpoint is resumed: no reason to refuse it, and its progress."""
    return [None, asdict(progress)]


def make_checkpoint(progress: Progress) -> Checkpoint:
    return Checkpoint(
        metadata=CheckpointMetadata(settings=CONFIG.settings_fixed_on_resume, progress=progress), state=STATE
    )


def make_manager(
    store: FakeStore | None,
    *,
    config: TrainConfig = CONFIG,
    clock: Sequence[float] = (0.0,) * 9,
    world: World = SINGLE_PROCESS,
    rank: int = 0,
    data_versions: tuple[str, ...] = (),
) -> CheckpointManager:
    """Return the manager of one of two ranks."""
    times = iter(clock)
    manager = CheckpointManager(
        config,
        dp=DataParallelGroup(rank=rank, world_size=2),
        store=cast(CheckpointStore, store),
        world=world,
        data_versions=data_versions,
        clock=lambda: next(times),
    )
    manager.load_newest()
    return manager
