"""Record why instances cannot boot, in files for the control plane and the user.

EC2 ends an instance that it cannot start with "Server.InternalError: Internal error on launch" ("Instance terminates
immediately", Amazon EC2 User Guide), and its Auto Scaling group notes a failed launch. The local AWS does the same and
adds the reason.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.errors import LocalError

DIRECTORY: Final = "launch-failures"
START_TIMEOUT_S: Final = 60.0
"""Seconds to retry a node that cannot be switched on before its group launches another."""
RETRY_S: Final = 5.0
BOOT_TIMEOUT_S: Final = 300.0
"""Seconds within which a node must request its metadata; with eight booting on two busy cores, it takes a minute."""


@dataclass(kw_only=True, slots=True)
class _Launch:
    """The launch of an instance that has not booted yet."""

    began_at: float
    failed_at: float = 0.0
    reason: str = ""
    """Reason of the last failed attempt; empty before one has failed."""


class Launches:
    """Tracks the launches of the instances that have not booted yet."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._launches: dict[str, _Launch] = {}

    def begin_attempt(self, instance_id: str) -> None:
        """Begin a launch attempt. Raises LocalError with the last failure's reason during the back-off."""
        now = self._monotonic()
        launch = self._launches.setdefault(instance_id, _Launch(began_at=now))
        if launch.reason and now - launch.failed_at < RETRY_S:
            raise LocalError(launch.reason)

    def record_failed_attempt(self, instance_id: str, reason: str) -> None:
        """Record why an attempt failed, and when."""
        now = self._monotonic()
        launch = self._launches.setdefault(instance_id, _Launch(began_at=now))
        launch.failed_at, launch.reason = now, reason

    def takes_longer_than(self, instance_id: str, seconds: float) -> bool:
        """Return True if an instance has not booted and its first attempt was more than ``seconds`` ago."""
        launch = self._launches.get(instance_id)
        return launch is not None and self._monotonic() - launch.began_at > seconds

    def forget_others(self, booting: Collection[str]) -> None:
        """Forget all instances but these, because the others have booted or are gone."""
        for instance_id in self._launches.keys() - set(booting):
            del self._launches[instance_id]


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
