"""Store the progress of a node's setup in a file: the service writes it, the agent reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from bootstrap.atomic_file import write_file
from bootstrap.contract import SETUP_DONE, SETUP_HASH_LENGTH, SETUP_RUNNING, SETUP_STATE_FILE
from bootstrap.files.paths import under_root


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupProgress:
    """Content of the progress file, which a reboot deletes."""

    state: Literal["running", "done", "failed"]
    sha256: str
    """Hash of the archive whose progress this is."""
    failure: str | None = None
    """The failure, short enough for a failure signal; None unless the setup has failed."""

    @property
    def is_running(self) -> bool:
        """Return True until the setup has ended."""
        return self.state == SETUP_RUNNING

    @property
    def is_done(self) -> bool:
        """Return True if the setup has succeeded or there is none."""
        return self.state == SETUP_DONE

    @property
    def outcome(self) -> str:
        """Return the value of contract.SETUP_FIELD; empty while the setup runs, and without one."""
        return f"{self.state}:{self.sha256[:SETUP_HASH_LENGTH]}" if self.sha256 and not self.is_running else ""


NO_SETUP: Final = SetupProgress(state=SETUP_DONE, sha256="")
"""Progress of a node without a setup."""


def write_progress(root: Path, progress: SetupProgress) -> None:
    """Write the progress file."""
    write_file(under_root(root, SETUP_STATE_FILE), json.dumps(asdict(progress)) + "\n")


def read_progress(root: Path, *, sha256: str | None) -> SetupProgress:
    """Return the progress of the archive with this hash: NO_SETUP without one, running until the service reports."""
    if sha256 is None:
        return NO_SETUP
    starting = SetupProgress(state=SETUP_RUNNING, sha256=sha256)
    try:
        progress = SetupProgress(**json.loads(under_root(root, SETUP_STATE_FILE).read_text()))
    except FileNotFoundError:
        return starting
    return progress if progress.sha256 == sha256 else starting
