"""Choose the checkpoint that all ranks resume from, given a report of each rank.

The named tuples are what ranks send with all_gather, which transmits numbers and booleans.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainer.checkpoint.format import CheckpointMetadata
from trainer.config.choices import format_value, option_name
from trainer.config.settings import TrainConfig


class RankReport(NamedTuple):
    """Contents of one rank's checkpoint directory. A run is identified by its start time, because that is a number."""

    run_started_at: float = 0.0
    """Start time of the run of the newest checkpoint; 0 without a checkpoint."""
    epoch: float = 0.0
    samples: float = 0.0
    completed_run_started_at: float = 0.0
    """Start time of the last run that completed here; 0 if none has."""
    completed_before_restart: bool = False
    """True if this job completed that run before the launcher restarted the job."""
    in_another_directory: bool = False
    """True if the directory differs from rank 0's."""

    @property
    def position(self) -> tuple[float, float, float]:
        """Return the sort key of the newest checkpoint; greater is newer."""
        return self.run_started_at, self.epoch, self.samples


class BestOfRank(NamedTuple):
    """Best epoch of this run whose checkpoint a rank has."""

    is_known: bool
    accuracy: float


def ignore_other_runs(reports: Sequence[RankReport]) -> list[RankReport]:
    """Ignore the reports about other runs in other directories if rank 0 has a run to resume.

    The list keeps one report per rank.
    """
    first = reports[0].run_started_at
    result = []
    for report in reports:
        if first and report.in_another_directory:
            if report.run_started_at != first:
                report = report._replace(run_started_at=0.0, epoch=0.0, samples=0.0)
            if report.completed_run_started_at != first:
                report = report._replace(completed_run_started_at=0.0)
        result.append(report)
    return result


def ignore_completed_runs(reports: Sequence[RankReport]) -> list[RankReport]:
    """Ignore the checkpoints of completed runs: a machine that was unreachable at the end still has its own.

    Keep those of a run that this job completed: its final checkpoint was lost with a machine, so resume from them. The
    list keeps one report per rank.
    """
    newest_completed = max(
        0.0 if report.completed_before_restart else report.completed_run_started_at for report in reports
    )
    return [
        report
        if report.run_started_at > newest_completed
        else report._replace(run_started_at=0.0, epoch=0.0, samples=0.0)
        for report in reports
    ]


def completed_run_start(reports: Sequence[RankReport]) -> float:
    """Return the start time of the run that this job had completed before its restart; 0 if it had not."""
    return max(report.completed_run_started_at if report.completed_before_restart else 0.0 for report in reports)


def newer_settings(metadata: CheckpointMetadata, config: TrainConfig) -> list[str]:
    """Return the settings that a checkpoint of an earlier version lacks, as the user would write them."""
    new = {name: value for name, value in config.settings_fixed_on_resume.items() if name not in metadata.settings}
    return [f"{option_name(name)} {format_value(value)}" for name, value in new.items()]


def has_other_data(metadata: CheckpointMetadata, versions: tuple[str, ...]) -> bool:
    """Return True if the data was and is in S3, and its files have changed since the checkpoint."""
    return bool(metadata.data_versions and versions) and metadata.data_versions != versions


def reason_to_refuse(metadata: CheckpointMetadata, config: TrainConfig) -> str | None:
    """Return why this run cannot resume from a checkpoint, or None: other settings, or no epochs left."""
    for name, value in config.settings_fixed_on_resume.items():
        previous = metadata.settings.get(name, value)
        if previous != value:
            return (
                f"the interrupted run of {config.checkpoint_prefix} "
                f"had {option_name(name)} {format_value(previous)}, got {format_value(value)}: "
                "to start over, pass --resume never; to keep both, pass another --model-prefix"
            )
    if metadata.progress.epoch >= config.num_epochs:
        return (
            f"--num-epochs must be more than the {metadata.progress.epoch} that the interrupted run of "
            f"{config.checkpoint_prefix} has done, got {config.num_epochs}; to start over, pass --resume never"
        )
    return None
