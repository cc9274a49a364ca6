"""When a training keeps a checkpoint, and which one it goes on from: the same on all ranks."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from trainer.best import Score
from trainer.checkpoint import Checkpoint, Description, checkpoint_path, save
from trainer.choices import option, shown
from trainer.config import TrainConfig
from trainer.directories import directory_of
from trainer.engines import Asks, Engine
from trainer.engines.patience import PAUSE_S
from trainer.errors import TrainerError, UsageError
from trainer.gather import gather, tell
from trainer.keeper import Keeper
from trainer.mark import Mark
from trainer.metrics import Clock
from trainer.progress import Progress
from trainer.ranks import Ranks
from trainer.sampling import Shard

log = logging.getLogger(__name__)

ALONE: Final = Ranks()


class Checkpoints:
    """One rank's part: what it asks for, what it writes, what it has found."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        shard: Shard,
        keeper: Keeper | None,
        ranks: Ranks = ALONE,
        told_to_stop: Callable[[], bool] = lambda: False,
        clock: Clock = time.monotonic,
    ) -> None:
        """Look for a checkpoint; ``keeper`` is None on a rank whose machine another one writes for."""
        self._config = config
        self._identity = config.identity
        self._shard = shard
        self._keeper = keeper
        self._job = ranks.job
        self._restarts = ranks.restarts
        self._is_restart = bool(ranks.job and ranks.restarts)
        self._told_to_stop = told_to_stop
        self._clock = clock
        self._kept_at = clock()
        self._started = 0.0
        self._best: float | None = None
        """Validation accuracy of the best epoch so far, the same on all ranks until the last."""
        self._found = None if keeper is None or config.resume == "never" else keeper.newest()

    def begin(self, engine: Engine, *, elsewhere: bool = False, shared: bool = False) -> Progress | None:
        """Bring all ranks to the newest place that one of them has a checkpoint of.

        ``elsewhere``: whether this rank's are in another directory than rank 0's; ``shared``: whether they are in the
        very same one, so that rank 0 writes for this rank. None when the training was over before the launcher
        started its job again.
        """
        if shared:
            self._keeper = self._found = None
        begin = self._begin(engine, elsewhere)
        if begin is None:
            return None
        self._started = begin.started
        if begin.epoch or begin.samples:
            if self._keeper is not None:
                self._keeper.find_best()
            has, accuracy = max(self._bests(engine))
            self._best = accuracy if has else None
        return begin

    def _begin(self, engine: Engine, elsewhere: bool) -> Progress | None:
        own = self._found.description.progress if self._found else Progress()
        mark = Mark() if self._keeper is None else self._keeper.mark()
        values = [*own.place, mark.started, self._is_ours(mark), elsewhere]
        said = gather(engine, values, shard=self._shard)
        rows = [row[:-1] for row in _of_rank_0s_training(said)]
        self._started = max(started if is_ours else 0.0 for *_, started, is_ours in rows)
        if self._started and self._has_end(engine):
            if self._shard.index == 0:
                log.info("the training was over before its job was started again, nothing is left to do")
            return None
        # A machine that missed the end of a training still has a checkpoint of it. But where this very training was
        # over, and what it was for went with a machine, that is what there is to go on from.
        finished = max(0.0 if is_ours else started for *_, started, is_ours in rows)
        places = [tuple(place) if place[0] > finished else Progress().place for *place, _, _ in rows]
        source = places.index(max(places))
        mine = self._found if source == self._shard.index else None
        if any(places[source]) and said[source][-1] and not any(places[0]) and not self._restarts:
            self._refuse_other_directory(engine, source)
        self._found = None
        if not any(places[source]):
            if self._keeper is not None:
                self._keeper.forget()
            # Later than the last one also by the clock of another machine.
            latest = max(row[-3] for row in said)
            [[started], *_] = gather(engine, [max(time.time(), latest + 1)], shard=self._shard)
            engine.restore(None, source=0)
            return Progress(started=started)
        refusal = refuse(mine.description, self._config) if mine else None
        values = [own.started, own.epoch, own.samples, own.loss_sum, own.correct, refusal is not None]
        *values, refused = gather(engine, values, shard=self._shard)[source]
        if refused:
            # The same line from all, whichever the launcher repeats.
            raise UsageError(tell(engine, refusal or "", source=source, shard=self._shard))
        engine.restore(mine.state if mine else None, source=source)
        progress = _progress(values)
        if self._shard.index == 0:
            log.info(
                "going on at epoch %d sample %d, from the checkpoint of rank %d; --resume never begins anew",
                progress.epoch,
                progress.samples,
                source,
            )
        return progress

    def _refuse_other_directory(self, engine: Engine, source: int) -> NoReturn:
        """It may be of another training, or what a lost disk has left: a person has to say which."""
        own = "" if self._keeper is None else directory_of(self._keeper.prefix)
        place = tell(engine, own, source=source, shard=self._shard)
        raise UsageError(
            f"rank {source} has the checkpoint of an interrupted training in {place}, which is not rank 0's directory, "
            "where there is none: run it where both are the same to go on, --resume never begins anew, another "
            "--model-prefix keeps both"
        )

    def asks(self) -> Asks:
        """What this rank wants after the step that begins."""
        due = self._shard.index == 0 and self._clock() - self._kept_at >= self._config.checkpoint_seconds
        return Asks(save=due, stop=self._told_to_stop())

    def keep(self, engine: Engine, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        """Keep a checkpoint of this place; ``validation_accuracy`` is given at the end of an epoch."""
        self._kept_at = self._clock()
        [writing] = engine.sum_over_ranks([self._keeper is not None and self._keeper.is_writing])
        if writing:
            # Those ranks wait first, and the others for them in the next step.
            engine.expect_pause(PAUSE_S)
        is_best = validation_accuracy is not None and self._is_best(validation_accuracy)
        if self._keeper is not None:
            description, snapshot = self._describe(progress, validation_accuracy), engine.snapshot()
            self._keeper.keep(lambda: Checkpoint(description=description, state=snapshot()), is_best=is_best)

    def end(self, engine: Engine, *, validation_accuracy: float) -> str:
        """Write the checkpoint that the training was for, on a rank 0; returns where it is. Then all is over."""
        if self._keeper is None:
            raise ValueError("rank 0 keeps checkpoints")
        path = checkpoint_path(self._keeper.prefix, epochs=self._config.num_epochs)
        progress = Progress(started=self._started, epoch=self._config.num_epochs)
        try:
            save(path, Checkpoint(description=self._describe(progress, validation_accuracy), state=engine.state()))
        except TrainerError as error:
            raise TrainerError(f"{error}; the same command goes on from the checkpoint before") from error
        self._keeper.wait()
        if self._is_best(validation_accuracy):
            self._keeper.keep_best(path)
        best = validation_accuracy if self._best is None else self._best
        return self._keeper.publish(path, best=Score(self._started, best))

    def agree_on_end(self, engine: Engine) -> None:
        """Return when rank 0 has ended the training; it says which machine has the best, where its own has not."""
        bests = self._bests(engine)
        holder = bests.index(max(bests))
        if holder:
            own = "" if self._keeper is None else str(self._keeper.best_path)
            path = tell(engine, own, source=holder, shard=self._shard)
            accuracy = bests[holder][1]
            if self._shard.index == 0 and accuracy == self._best:
                log.warning(
                    "the network of the best epoch, Validation-accuracy=%.6f, is not here but on rank %d's machine: %s",
                    accuracy,
                    holder,
                    path,
                )

    def finish(self) -> None:
        """Note on every machine that the training is over, and remove its checkpoints but the best.

        Not before all ranks know that what it was for is where it is to be.
        """
        if self._keeper is not None:
            self._keeper.set_mark(self._mark(self._started))
            self._keeper.forget()

    def _mark(self, started: float) -> Mark:
        settings = {**self._config.identity, "num_epochs": self._config.num_epochs}
        return Mark(started=started, job=self._job, settings=settings)

    def _is_ours(self, mark: Mark) -> bool:
        """Whether a mark says that this training was over before the launcher started its job again."""
        if self._keeper is None or not self._job or mark != self._mark(mark.started):
            return False
        if not self._is_restart:
            # Of an earlier job to which a person gave the same name: this one's restarts shall not take it for theirs.
            self._keeper.set_mark(replace(mark, job=""))
        return self._is_restart

    def _has_end(self, engine: Engine) -> bool:
        """Whether any rank has what the training was for; there are no marks before all copies in S3 are made."""
        here = self._config.s3_folder is not None
        if self._keeper is not None and not here:
            path = checkpoint_path(self._keeper.prefix, epochs=self._config.num_epochs)
            here = self._keeper.has(path, of_training=self._started)
        [ranks] = engine.sum_over_ranks([here])
        return ranks > 0

    def _bests(self, engine: Engine) -> list[list[float]]:
        """Of every rank whether it has a network of this training's best epoch as it knows it, and how accurate."""
        best = None if self._keeper is None else self._keeper.best(of_training=self._started)
        return gather(engine, [best is not None, best or 0.0], shard=self._shard)

    def _is_best(self, accuracy: float) -> bool:
        """Whether no epoch of this training was as good."""
        is_best = self._best is None or accuracy > self._best
        if is_best:
            self._best = accuracy
        return is_best

    def _describe(self, progress: Progress, accuracy: float | None) -> Description:
        return Description(settings=self._identity, progress=progress, validation_accuracy=accuracy)


def _of_rank_0s_training(rows: list[list[float]]) -> list[list[float]]:
    """What the ranks have said; where rank 0 has a training to go on with, of others' directories that one alone."""
    first = rows[0][0]
    counted = []
    for started, epoch, samples, over, is_ours, elsewhere in rows:
        place = [started, epoch, samples] if not (first and elsewhere) or started == first else [0.0] * 3
        counts = not (first and elsewhere) or over == first
        counted.append([*place, over if counts else 0.0, is_ours, elsewhere])
    return counted


def _progress(values: Sequence[float]) -> Progress:
    started, epoch, samples, loss_sum, correct = values
    return Progress(started=started, epoch=int(epoch), samples=int(samples), loss_sum=loss_sum, correct=int(correct))


def refuse(description: Description, config: TrainConfig) -> str | None:
    """Say why this training cannot go on from a checkpoint: it is another's."""
    for name, value in config.identity.items():
        before = description.settings.get(name)
        if before != value:
            return (
                f"the interrupted training of {config.checkpoint_prefix} had {option(name)} {shown(before)}, "
                f"got {shown(value)}: "
                "--resume never begins anew, another --model-prefix keeps both"
            )
    if description.progress.epoch >= config.num_epochs:
        return (
            f"--num-epochs must be more than the {description.progress.epoch} that the interrupted training of "
            f"{config.checkpoint_prefix} has done, got {config.num_epochs}: --resume never begins anew"
        )
    return None
