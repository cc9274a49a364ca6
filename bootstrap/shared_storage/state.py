"""Connect the agent with the mount service: the agent writes the file system's ID, the service its state."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bootstrap.atomic_file import write_file
from bootstrap.cluster.record_validation import RecordError, check_mount
from bootstrap.contract import MOUNT_NOT_KNOWN, MOUNTED, SHARED_STATE_FILE, SHARED_TARGET_FILE
from bootstrap.files.paths import under_root

log = logging.getLogger(__name__)


SETTLE_S: Final = 30.0
"""Seconds that any state other than mounted must last before the cluster is informed: every node reads each changed
membership, and the master counts one change a minute."""


class SharedStorage:
    """The shared storage as the agent sees it; ``wanted`` is the setting, None for no shared storage."""

    def __init__(self, root: Path, *, wanted: str | None, monotonic: Callable[[], float]) -> None:
        self._root = root
        self._wanted = wanted
        self._monotonic = monotonic
        self._seen, self._since = MOUNT_NOT_KNOWN, 0.0
        self._reported = MOUNT_NOT_KNOWN

    def follow(self, announced: str) -> None:
        """Tell the service which file system the membership announces.

        The setting's own ID takes precedence, because a process on the master can write the membership.
        """
        if self._wanted is None:
            return
        target = self._wanted if self._wanted.startswith("efs:") else announced
        if target and (target == self._wanted or target.startswith(f"{self._wanted}:")):
            write_file(under_root(self._root, SHARED_TARGET_FILE), f"{target}\n")

    def mount_state(self) -> str:
        """Return the state for this node's record; empty without shared storage."""
        if self._wanted is None:
            return ""
        try:
            state = check_mount(under_root(self._root, SHARED_STATE_FILE).read_text().strip()) or MOUNT_NOT_KNOWN
        except (OSError, UnicodeDecodeError, RecordError):
            state = MOUNT_NOT_KNOWN
        return self._debounced(state)

    def _debounced(self, state: str) -> str:
        now = self._monotonic()
        if state != self._seen:
            self._seen, self._since = state, now
        if state != self._reported and (state == MOUNTED or now - self._since >= SETTLE_S):
            log.info("shared storage: %s", state)
            self._reported = state
        return self._reported
