"""Record which training run completed last on this machine, and in which job.

If a rank is killed while it exits after training, the launcher restarts the job. The marker shows that nothing is left
to do. A new job with the same command starts a new run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer.atomic_file import atomic_write


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionMarker:
    """The last completed run; the defaults mean none."""

    run_started_at: float = 0.0
    """Start time of the run; see Progress.run_started_at."""
    job_id: str = ""
    """The job's ID from the launcher, World.job_id; empty without a launcher, or once the job no longer matters."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """TrainConfig.settings_fixed_on_resume and the number of epochs."""


def write_marker(path: Path, marker: CompletionMarker) -> None:
    """Write the marker atomically; TrainerError on failure."""
    with atomic_write(path, what="completion marker") as file:
        file.write(json.dumps(asdict(marker)).encode())


def read_marker(path: Path) -> CompletionMarker:
    """Read the marker; treat an unreadable one as missing, which at worst resumes a run needlessly."""
    try:
        return CompletionMarker(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return CompletionMarker()
