"""The note that a training is over: which one it was, and of which job.

What the launcher starts again once the training is over, as a rank was killed on its way out, has nothing left to do; a
new job with the same command trains anew.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer.files import replacing


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The last training that is over; as it is, of none."""

    started: float = 0.0
    """When it began; see trainer.progress."""
    job: str = ""
    """The launcher's name of its job; empty where there was no launcher, or that job no longer matters."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Those of TrainConfig.identity, and to what end it trained."""


def write_mark(path: Path, mark: Mark) -> None:
    """Write it, whole or not at all; TrainerError when that fails."""
    with replacing(path, what="mark") as file:
        file.write(json.dumps(asdict(mark)).encode())


def read_mark(path: Path) -> Mark:
    """Read it back; what cannot be read is none: then a training may go on that need not, and no more."""
    try:
        return Mark(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return Mark()
