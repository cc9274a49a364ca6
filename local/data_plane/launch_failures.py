"""Record why instances cannot boot, in files for the control plane and the user.

EC2 ends an instance that it cannot start with "Server.InternalError: Internal error on launch" ("Instance terminates
immediately", Amazon EC2 User Guide), and its Auto Scaling group notes a failed launch. The local AWS does the same and
adds the reason.
"""

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from local.errors import LocalError

DIRECTORY: Final = "launch-failures"
START_TIMEOUT_S: Final = 60.0
"""Seconds to retry a node that cannot be switched on before its group launches another."""
RETRY_S: Final = 5.0
BOOT_TIMEOUT_S: Final = 300.0
"""Seconds within which a node must request its metadata; with eight booting on two busy cores, it takes a minute."""


class LaunchAttempts:
    """Tracks each instance that has not booted yet: its first attempt, its last failure, its next attempt."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._begun: dict[str, float] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def begin_or_wait(self, instance_id: str) -> None:
        """Note the time of the first attempt.

        Raises LocalError with the last failure's reason until the next attempt is due.
        """
        now = self._monotonic()
        self._begun.setdefault(instance_id, now)
        failed_at, reason = self._failed.get(instance_id, (now, ""))
        if reason and now - failed_at < RETRY_S:
            raise LocalError(reason)

    def note(self, instance_id: str, reason: str) -> None:
        """Record a failed attempt."""
        self._failed[instance_id] = self._monotonic(), reason

    def exceeds(self, instance_id: str, seconds: float) -> bool:
        """Return True if the first attempt was more than ``seconds`` ago."""
        return self._monotonic() - self._begun.get(instance_id, self._monotonic()) > seconds

    def retain(self, instances: Collection[str]) -> None:
        """Keep only these instances, because the others have booted or are gone."""
        for instance_id in self._begun.keys() - set(instances):
            del self._begun[instance_id]
            self._failed.pop(instance_id, None)


def write_failure(run_dir: Path, instance_id: str, reason: str) -> None:
    """Publish why an instance does not boot."""
    directory = run_dir / DIRECTORY
    directory.mkdir(exist_ok=True)
    partial = directory / f".{instance_id}.partial"
    partial.write_text(reason)
    partial.rename(directory / instance_id)


def read_failures(run_dir: Path) -> Mapping[str, str]:
    """Return why instances did not boot, by instance, oldest first."""
    files = sorted((run_dir / DIRECTORY).glob("i-*"), key=lambda file: file.stat().st_mtime)
    return {file.name: file.read_text() for file in files}


def read_reason(run_dir: Path, instance_id: str) -> str | None:
    """Return why an instance did not boot; None if no reason was published."""
    try:
        return (run_dir / DIRECTORY / instance_id).read_text()
    except FileNotFoundError:
        return None
