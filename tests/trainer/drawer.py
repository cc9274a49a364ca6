"""What a rank keeps, and what another one says, where tests can see it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from trainer.best import Score
from trainer.checkpoint import Checkpoint, Description, load
from trainer.checkpoints import ALONE, Checkpoints
from trainer.config import TrainConfig
from trainer.engines import State
from trainer.keeper import Keeper
from trainer.mark import Mark
from trainer.progress import Progress
from trainer.ranks import Ranks
from trainer.sampling import Shard

CONFIG = TrainConfig(num_epochs=3)
STATE = State(weights={"a": np.zeros(1)})
NONE = (0, 0, 0, 0, 0, 0)
"""What a rank says that has no checkpoint and no mark, or of this one in what the other rank says."""


class Drawer:
    """Keeps checkpoints where a test can see them."""

    def __init__(self, progress: Progress | None = None, *, finished: float = 0, mark: Mark | None = None) -> None:
        self.kept: list[Checkpoint] = [] if progress is None else [checkpoint(progress)]
        self.bests: list[float | None] = []
        self.asked = False
        """Whether it has looked into S3."""
        self.published: Score | None = None
        self.best_of: Score | None = None
        self.prefix = "net"
        self.best_path = Path("net-best.npz")
        self.is_writing = False
        self._mark = mark or Mark(started=finished)
        self.end = 0.0
        """Of which training the file is that the last one was for."""

    def newest(self) -> Checkpoint | None:
        return self.kept[-1] if self.kept else None

    def keep(self, take: Callable[[], Checkpoint], *, is_best: bool) -> None:
        self.kept.append(take())
        if is_best:
            self.bests.append(self.kept[-1].description.validation_accuracy)

    def find_best(self) -> None:
        self.asked = True

    def best(self, *, of_training: float) -> float | None:
        return self.best_of.accuracy if self.best_of and self.best_of.started == of_training else None

    def keep_best(self, path: Path) -> None:
        self.bests.append(load(path).description.validation_accuracy)

    def publish(self, path: Path, *, best: Score) -> str:
        self.published = best
        return str(path)

    def wait(self) -> None:
        pass

    def mark(self) -> Mark:
        return self._mark

    def set_mark(self, over: Mark) -> None:
        self._mark = over

    def has(self, path: Path, *, of_training: float) -> bool:
        return path == Path("net-0003.npz") and of_training == self.end

    def forget(self) -> None:
        self.kept.clear()


class Others:
    """An engine whose other rank says what it was given."""

    def __init__(self, *sums: Sequence[float]) -> None:
        self._sums = list(sums)
        self.restored: list[tuple[State | None, int]] = []
        self.pauses: list[float] = []

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        others = self._sums.pop(0) if self._sums else [0] * len(values)
        return [own + other for own, other in zip(values, others, strict=True)]

    def restore(self, state: State | None, *, source: int) -> None:
        self.restored.append((state, source))

    def expect_pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def snapshot(self) -> Callable[[], State]:
        return lambda: STATE

    def state(self) -> State:
        return STATE


def checkpoint(progress: Progress) -> Checkpoint:
    return Checkpoint(description=Description(settings=CONFIG.identity, progress=progress), state=STATE)


def checkpoints(
    drawer: Drawer | None,
    *,
    config: TrainConfig = CONFIG,
    clock: Sequence[float] = (0.0,) * 9,
    ranks: Ranks = ALONE,
    rank: int = 0,
) -> Checkpoints:
    times = iter(clock)
    return Checkpoints(
        config,
        shard=Shard(index=rank, count=2),
        keeper=cast(Keeper, drawer),
        ranks=ranks,
        clock=lambda: next(times),
    )
