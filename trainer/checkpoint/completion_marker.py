"""Record which training run completed last on this machine, and in which job.

A rank may be killed on its way out, after training has completed. The launcher then restarts a job that has nothing
left to do, and the marker tells it so; a new job with the same command starts a new run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer.atomic_file import atomic_write


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionMarker:
    """The last completed run; the defaults mean that there was none."""

    started: float = 0.0
    """When it started; see Progress.started."""
    job: str = ""
    """The launcher's name of its job; empty without a launcher, or when that job no longer matters."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """TrainConfig.identity and the number of epochs."""


def write_marker(path: Path, marker: CompletionMarker) -> None:
    """Write the marker, whole or not at all; TrainerError on failure."""
    with atomic_write(path, what="completion marker") as file:
        file.write(json.dumps(asdict(marker)).encode())


def read_marker(path: Path) -> CompletionMarker:
    """Read the marker; one that cannot be read counts as none: at worst a run resumes needlessly."""
    try:
        return CompletionMarker(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return CompletionMarker()
