"""Decide when to save a checkpoint and where a run resumes, identically on all ranks."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final, NoReturn, Protocol

from trainer.backend import Backend, StepFlags
from trainer.checkpoint.best import Score
from trainer.checkpoint.completion_marker import CompletionMarker
from trainer.checkpoint.format import Checkpoint, CheckpointMetadata, final_checkpoint_path, save_checkpoint
from trainer.checkpoint.resume import (
    BestOfRank,
    RankReport,
    completed_run_start,
    has_other_data,
    ignore_completed_runs,
    ignore_other_runs,
    newer_settings,
    reason_to_refuse,
)
from trainer.checkpoint.shared_dir import checkpoint_directory, detect_another_directory, detect_shared_directory
from trainer.checkpoint.store import CheckpointStore
from trainer.config.settings import TrainConfig
from trainer.distributed.all_gather import all_gather
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.errors import TrainerError, UsageError
from trainer.metrics.results import Clock
from trainer.progress import Progress
from trainer.timeouts import CHECKPOINT_STALL_TIMEOUT_S

log = logging.getLogger(__name__)

SINGLE_PROCESS: Final = World()


class CheckpointSaver(Protocol):
    """Interface that the training loop uses to save checkpoints."""

    def flags(self) -> StepFlags:
        """Return what this rank asks all ranks to do once the current step is complete."""

    def save(self, backend: Backend, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        """Save a checkpoint of this position; all ranks call it at the same step."""


class CheckpointManager:
    """Saves and resumes on one rank, in agreement with the other ranks."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        dp: DataParallelGroup,
        store: CheckpointStore | None,
        world: World = SINGLE_PROCESS,
        data_versions: tuple[str, ...] = (),
        stop_requested: Callable[[], bool] = lambda: False,
        clock: Clock = time.monotonic,
    ) -> None:
        """Read nothing yet. ``store`` is None if another rank reads and writes for this one."""
        self._config = config
        self._dp = dp
        self._store = store
        self._world = world
        self._data_versions = data_versions
        self._stop_requested = stop_requested
        self._clock = clock
        self._saved_at = clock()
        self._run_started_at = 0.0
        self._best_accuracy: float | None = None
        """Validation accuracy of the best epoch so far, the same on all ranks until the last epoch."""
        self._loaded: Checkpoint | None = None

    def load_newest(self) -> None:
        """Load this machine's newest checkpoint, from which the run may continue; none with --resume never."""
        if self._store is not None and self._config.resume != "never":
            self._loaded = self._store.load_newest()

    def resume_or_start(self, backend: Backend) -> Progress | None:
        """Restore the newest checkpoint of any rank on all ranks, or start a new run; return the position.

        Here and below, None means that the run had completed before the launcher restarted the job. A rank that shares
        rank 0's directory writes no checkpoints from now on, because rank 0 does.
        """
        prefix = self._store.prefix if self._store else None
        return self.begin_run(
            backend,
            in_another_directory=detect_another_directory(backend, prefix, dp=self._dp),
            shares_rank_0_directory=detect_shared_directory(backend, prefix, dp=self._dp),
        )

    def begin_run(
        self, backend: Backend, *, in_another_directory: bool = False, shares_rank_0_directory: bool = False
    ) -> Progress | None:
        """Resume or start, knowing how this rank's directory compares with rank 0's; return the position.

        ``in_another_directory``: this rank's directory has another path than rank 0's.
        """
        if shares_rank_0_directory:
            self._store = self._loaded = None
        start = self._choose_start(backend, in_another_directory)
        self._loaded = None
        if start is None:
            return None
        self._run_started_at = start.run_started_at
        if start.epoch or start.samples:
            if self._store is not None:
                self._store.read_best_score_from_s3()
            best = max(self._gather_bests(backend))
            self._best_accuracy = best.accuracy if best.is_known else None
        return start

    def _choose_start(self, backend: Backend, in_another_directory: bool) -> Progress | None:
        """Choose the checkpoint of the rank that is furthest ahead and restore it, or start a new run."""
        marker = CompletionMarker() if self._store is None else self._store.marker()
        self._clear_job_of_earlier_marker(marker)
        all_reports = self._gather_reports(backend, marker, in_another_directory)
        reports = ignore_other_runs(all_reports)
        completed_start = completed_run_start(reports)
        if completed_start and self._is_final_checkpoint_stored(backend, run_started_at=completed_start):
            self._run_started_at = completed_start
            if self._dp.is_first_of_group:
                log.info("training had completed before its job was restarted, nothing is left to do")
            return None
        positions = [report.position for report in ignore_completed_runs(reports)]
        source = positions.index(max(positions))
        if not any(positions[source]):
            return self._start_new_run(backend, after=max(report.completed_run_started_at for report in all_reports))
        if all_reports[source].in_another_directory and not any(positions[0]) and not self._world.restart_count:
            self._refuse_other_directory(backend, source)
        return self._restore_from_rank(backend, source)

    def _gather_reports(
        self, backend: Backend, marker: CompletionMarker, in_another_directory: bool
    ) -> list[RankReport]:
        """Return what each rank has: the position of its checkpoint, and whether a run has completed there."""
        progress = self._loaded.metadata.progress if self._loaded else Progress()
        completed_before_restart = self._completed_before_restart(marker)
        report = RankReport(*progress.position, marker.run_started_at, completed_before_restart, in_another_directory)
        return all_gather(backend, report, dp=self._dp)

    def _start_new_run(self, backend: Backend, *, after: float) -> Progress:
        if self._store is not None:
            self._store.delete_resume_checkpoints()
        # Rank 0's clock may be behind: start times must increase from run to run.
        started_at = backend.broadcast_object(max(time.time(), after + 1), source=0)
        backend.restore(None, source=0)
        return Progress(run_started_at=started_at)

    def _restore_from_rank(self, backend: Backend, source: int) -> Progress:
        """Load the checkpoint of the rank ``source`` on all ranks; UsageError if it is of another run."""
        loaded = self._loaded if source == self._dp.rank else None
        reason = reason_to_refuse(loaded.metadata, self._config) if loaded else None
        reason = backend.broadcast_object(reason, source=source)
        if reason is not None:
            # Raise the same message on all ranks, because the launcher repeats the message of any rank.
            raise UsageError(reason)
        stored = asdict(loaded.metadata.progress) if loaded else None
        progress = Progress(**backend.broadcast_object(stored, source=source))
        backend.restore(loaded.state if loaded else None, source=source)
        if loaded and (new := newer_settings(loaded.metadata, self._config)):
            log.warning("the checkpoint predates %s; using the current values", ", ".join(new))
        if loaded and has_other_data(loaded.metadata, self._data_versions):
            log.warning(
                "the data in S3 has changed since the checkpoint was written: its ETags were %s, are %s; training "
                "continues with the new data; to start over, pass --resume never",
                " ".join(loaded.metadata.data_versions),
                " ".join(self._data_versions),
            )
        if self._dp.is_first_of_group:
            log.info(
                "resuming at epoch %d sample %d, from the checkpoint of rank %d; to start over, pass --resume never",
                progress.epoch,
                progress.samples,
                source,
            )
        return progress

    def _refuse_other_directory(self, backend: Backend, source: int) -> NoReturn:
        """Raise UsageError: only the user knows whether this is another run, or this one with rank 0's disk lost."""
        directory = "" if self._store is None else checkpoint_directory(self._store.prefix)
        directory = backend.broadcast_object(directory, source=source)
        raise UsageError(
            f"rank {source} has the checkpoint of an interrupted run in {directory}, which is not rank 0's "
            "directory, and rank 0 has none: to resume, start it where both directories are the same; to start over, "
            "pass --resume never; to keep both, pass another --model-prefix"
        )

    def flags(self) -> StepFlags:
        """Return what this rank asks all ranks to do once the current step is complete."""
        is_due = self._dp.is_first_of_group and self._clock() - self._saved_at >= self._config.checkpoint_seconds
        return StepFlags(save=is_due, stop=self._stop_requested())

    def save(self, backend: Backend, progress: Progress, *, validation_accuracy: float | None = None) -> None:
        """Save a checkpoint of this position; pass ``validation_accuracy`` at the end of an epoch."""
        self._saved_at = self._clock()
        [writing] = backend.all_reduce([self._store is not None and self._store.is_writing])
        if writing:
            # Ranks that are still writing wait for their previous checkpoint. The others wait in the next step.
            backend.set_timeout(CHECKPOINT_STALL_TIMEOUT_S)
        is_best = validation_accuracy is not None and self._update_best(validation_accuracy)
        if self._store is not None:
            metadata, snapshot = self._describe(progress, validation_accuracy), backend.snapshot()
            self._store.save(lambda: Checkpoint(metadata=metadata, state=snapshot()), is_best=is_best)

    def write_final(self, backend: Backend, *, validation_accuracy: float) -> str:
        """Write the final checkpoint, on rank 0; return its path or URL."""
        if self._store is None:
            raise ValueError("only a rank with a checkpoint store writes the final checkpoint")
        path = final_checkpoint_path(self._store.prefix, epochs=self._config.num_epochs)
        progress = Progress(run_started_at=self._run_started_at, epoch=self._config.num_epochs)
        try:
            metadata = self._describe(progress, validation_accuracy)
            save_checkpoint(path, Checkpoint(metadata=metadata, state=backend.state()))
        except TrainerError as error:
            raise TrainerError(f"{error}; rerun the same command to resume from the previous checkpoint") from error
        self._store.wait_until_written()
        if self._update_best(validation_accuracy):
            self._store.save_best(path)
        best = validation_accuracy if self._best_accuracy is None else self._best_accuracy
        return self._store.upload_final(path, best=Score(self._run_started_at, best))

    def wait_for_final(self, backend: Backend) -> None:
        """Wait until rank 0 has written the final checkpoint; warn on rank 0 if another machine has the best one."""
        bests = self._gather_bests(backend)
        holder = bests.index(max(bests))
        if holder:
            path = "" if self._store is None else str(self._store.best_path)
            path = backend.broadcast_object(path, source=holder)
            accuracy = bests[holder].accuracy
            if self._dp.is_first_of_group and accuracy == self._best_accuracy:
                log.warning(
                    "the network of the best epoch, Validation-accuracy=%.6f, is not here but on rank %d's machine: %s",
                    accuracy,
                    holder,
                    path,
                )

    def finish(self) -> None:
        """Mark the run as completed and delete its checkpoints but the best.

        Call it once every rank knows that the final checkpoint is stored.
        """
        if self._store is not None:
            self._store.set_marker(self._make_marker(self._run_started_at))
            self._store.delete_resume_checkpoints()

    def _make_marker(self, run_started_at: float) -> CompletionMarker:
        settings = {**self._config.settings_fixed_on_resume, "num_epochs": self._config.num_epochs}
        return CompletionMarker(run_started_at=run_started_at, job_id=self._world.job_id, settings=settings)

    def _completed_before_restart(self, marker: CompletionMarker) -> bool:
        """Return True if this job completed the marker's run before the launcher restarted it."""
        return self._is_own_marker(marker) and self._world.restart_count > 0

    def _clear_job_of_earlier_marker(self, marker: CompletionMarker) -> None:
        """On a job's first run, clear the job's ID in an older marker, which a restart would take for its own."""
        if self._store is not None and self._is_own_marker(marker) and not self._world.restart_count:
            self._store.set_marker(replace(marker, job_id=""))

    def _is_own_marker(self, marker: CompletionMarker) -> bool:
        """Return True if a run of this job, with these settings, left the marker."""
        return bool(self._world.job_id) and marker == self._make_marker(marker.run_started_at)

    def _is_final_checkpoint_stored(self, backend: Backend, *, run_started_at: float) -> bool:
        """Return True if a rank has the run's final checkpoint. With S3 the marker is set only after the upload."""
        has_final = self._config.s3_folder is not None
        if self._store is not None and not has_final:
            path = final_checkpoint_path(self._store.prefix, epochs=self._config.num_epochs)
            has_final = self._store.is_from_run(path, run_started_at=run_started_at)
        [ranks] = backend.all_reduce([has_final])
        return ranks > 0

    def _gather_bests(self, backend: Backend) -> list[BestOfRank]:
        best = None if self._store is None else self._store.best_accuracy(run_started_at=self._run_started_at)
        return all_gather(backend, BestOfRank(best is not None, best or 0.0), dp=self._dp)

    def _update_best(self, accuracy: float) -> bool:
        """Remember the accuracy if it is the best of the run, and return True if it is."""
        is_best = self._best_accuracy is None or accuracy > self._best_accuracy
        if is_best:
            self._best_accuracy = accuracy
        return is_best

    def _describe(self, progress: Progress, accuracy: float | None) -> CheckpointMetadata:
        return CheckpointMetadata(
            settings=self._config.settings_fixed_on_resume,
            progress=progress,
            validation_accuracy=accuracy,
            data_versions=self._data_versions,
        )
