"""Store the progress of a node's setup in a file: the service writes it, the agent reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

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


def write_progress(root: Path, progress: SetupProgress) -> None:
    """Write the progress file."""
    write_file(under_root(root, SETUP_STATE_FILE), json.dumps(asdict(progress)) + "\n")


class SetupMonitor:
    """Reads the progress for the agent; ``sha256`` is the archive's hash, None for no setup."""

    def __init__(self, root: Path, *, sha256: str | None) -> None:
        self._root = root
        self._sha256 = sha256

    @property
    def outcome(self) -> str | None:
        """Return the outcome for this node's record.

        It is empty without a setup, None while the setup runs, and then ``done:HASH`` or ``failed:HASH``, with the
        beginning of the archive's hash.
        """
        if self._sha256 is None:
            return ""
        progress = self._read()
        return None if progress.state == SETUP_RUNNING else f"{progress.state}:{progress.sha256[:SETUP_HASH_LENGTH]}"

    @property
    def is_done(self) -> bool:
        """Return True if the setup has succeeded or there is none."""
        return self._sha256 is None or self._read().state == SETUP_DONE

    @property
    def failure(self) -> str | None:
        """Return why the setup has failed; None if it has not."""
        return None if self._sha256 is None else self._read().failure

    def _read(self) -> SetupProgress:
        """Return the service's last progress for this archive."""
        starting = SetupProgress(state=SETUP_RUNNING, sha256=self._sha256 or "")
        try:
            progress = SetupProgress(**json.loads(under_root(self._root, SETUP_STATE_FILE).read_text()))
        except FileNotFoundError:
            return starting
        return progress if progress.sha256 == self._sha256 else starting
