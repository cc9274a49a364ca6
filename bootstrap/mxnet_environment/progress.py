"""Store the progress of a node's MXNet environment in a file: the service writes it, the agent reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bootstrap.atomic_file import write_file
from bootstrap.contract import MXNET_ENVIRONMENT_STATE_FILE
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentProgress:
    """Content of the progress file, which a reboot deletes."""

    state: str
    """Current step, one word."""
    why: str | None = None
    """Number and failure of the last try; None on the first."""
    failure: str | None = None
    """The final failure, short enough for a failure signal; None unless the service has failed."""
    detail: str | None = None
    """The failure's full message."""


READY = "ready"
STARTING = EnvironmentProgress(state="starting")


def write_progress(root: Path, progress: EnvironmentProgress) -> None:
    """Write the progress file."""
    write_file(under_root(root, MXNET_ENVIRONMENT_STATE_FILE), json.dumps(asdict(progress)) + "\n")


def read_progress(root: Path) -> EnvironmentProgress:
    """Return the service's last progress, or STARTING."""
    try:
        return EnvironmentProgress(**json.loads(under_root(root, MXNET_ENVIRONMENT_STATE_FILE).read_text()))
    except FileNotFoundError:
        return STARTING


class MxnetEnvironmentMonitor:
    """Reads the progress for the agent, which waits until the MXNet environment is ready."""

    def __init__(self, root: Path, *, name: str | None) -> None:
        self._root = root
        self._name = name
        self.waiting: str | None = None
        """Step that the agent waits for, short enough for a failure signal; None if it waits for none."""

    def check(self) -> bool:
        """Read the progress into ``waiting``; return True if the environment is ready or not wanted.

        Raises MxnetEnvironmentError if the service has failed.
        """
        if self._name is None:
            return True
        progress = read_progress(self._root)
        if progress.failure is not None:
            raise MxnetEnvironmentError(progress.failure, progress.detail or progress.failure)
        why = f" ({progress.why})" if progress.why else ""
        self.waiting = None if progress.state == READY else f"mxnet: {progress.state}{why}"
        return self.waiting is None
