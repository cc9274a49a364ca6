"""Run the service ``bootstrap shared-storage``: mount the file system however late it appears, and monitor it.

Nothing waits for this service: a node is ready, and in the cluster, without its shared directory.
"""

import logging
import random
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn, Protocol

from bootstrap.atomic_file import write_file
from bootstrap.config import parse_config
from bootstrap.contract import (
    MOUNT_NO_ADDRESS,
    MOUNT_NOT_KNOWN,
    MOUNT_OCCUPIED,
    MOUNT_REFUSED,
    MOUNT_UNREACHABLE,
    MOUNTED,
    NODE_CONFIG_FILE,
    SHARED_STATE_FILE,
    SHARED_TARGET_FILE,
)
from bootstrap.files.paths import under_root
from bootstrap.shared_storage.mounts import MountError, OccupiedError, SharedDirectory
from bootstrap.shared_storage.target import StorageTarget, parse_or_none
from bootstrap.shared_storage.tunnel import Tunnel, probe

log = logging.getLogger(__name__)

MAX_BACKOFF_S: Final = 20.0
"""Longest pause between attempts to mount, in seconds; they never stop."""
WATCH_S: Final = 15.0
"""Seconds between checks that a mounted file system answers."""
POLL_S: Final = 1.0
"""Seconds between checks for the file system's ID."""


class Directory(Protocol):
    """The shared directory; see `bootstrap.shared_storage.mounts.SharedDirectory`."""

    def guard(self) -> None:
        """Make it refuse writes unless something is mounted there. Raises MountError."""

    def is_mounted(self, target: StorageTarget) -> bool:
        """Return True if the file system is mounted. Raises OccupiedError if something else is."""

    def mount(self, command: Sequence[str]) -> None:
        """Mount the file system. Raises MountError."""

    def open_to_users(self) -> None:
        """Let every user write to a new file system. Raises MountError."""


class Mounter:
    """Mounts the file system; ``step`` makes one attempt or one check."""

    def __init__(
        self,
        *,
        root: Path,
        region: str,
        is_ours: bool,
        directory: Directory,
        start_tunnel: Callable[[StorageTarget], object],
        probe: Callable[[StorageTarget], None] = probe,
    ) -> None:
        self._root = root
        self._region = region
        self._is_ours = is_ours
        """True if the stack created the file system, so nobody has chosen its permissions yet."""
        self._directory = directory
        self._start_tunnel = start_tunnel
        self._probe = probe
        self._has_tunnel = False
        self._is_open = False
        """True if users may write to it, as far as the node decides that."""
        self._failures = 0
        self._state = ""

    def step(self) -> float:
        """Guard, mount or check; return the seconds until the next step."""
        target = self._read_target()
        try:
            self._directory.guard()
        except (MountError, OSError) as error:
            log.warning("the shared directory does not refuse writes: %s", error)
        if target is None:
            self._write_state(MOUNT_NOT_KNOWN, "its id has not arrived")
            return POLL_S
        state, reason = self._try(target)
        self._write_state(state, reason)
        self._failures = 0 if state == MOUNTED else self._failures + 1
        return WATCH_S if state == MOUNTED else min(MAX_BACKOFF_S, 2.0 ** min(self._failures - 1, 8))

    def _try(self, target: StorageTarget) -> tuple[str, str]:
        """Check the file system, and mount it if necessary; return the new state and the reason for it."""
        try:
            self._ensure_tunnel(target)
            self._probe(target)
            if not self._directory.is_mounted(target):
                self._directory.mount(target.mount_command)
                log.info("mounted %s", target.host)
                self._is_open = False
            if self._is_ours and not self._is_open:
                self._directory.open_to_users()
                self._is_open = True
        except socket.gaierror as error:
            return MOUNT_NO_ADDRESS, str(error)
        except ssl.SSLError as error:
            return MOUNT_REFUSED, str(error)
        except OccupiedError as error:
            return MOUNT_OCCUPIED, str(error)
        except MountError as error:
            return error.state, str(error)
        except OSError as error:
            return MOUNT_UNREACHABLE, str(error)
        return MOUNTED, target.host

    def _ensure_tunnel(self, target: StorageTarget) -> None:
        if target.is_efs and not self._has_tunnel:
            self._start_tunnel(target)
            self._has_tunnel = True

    def _read_target(self) -> StorageTarget | None:
        try:
            return parse_or_none(under_root(self._root, SHARED_TARGET_FILE).read_text(), region=self._region)
        except OSError:
            return None

    def _write_state(self, state: str, reason: str) -> None:
        if state != self._state:
            log.info("shared storage: %s (%s)", state, reason)
            self._state = state
        write_file(under_root(self._root, SHARED_STATE_FILE), f"{state}\n")


def serve_shared_storage(root: Path) -> None:
    """Serve until the process ends; return immediately if the cluster has no shared storage."""
    config = parse_config(under_root(root, NODE_CONFIG_FILE).read_text())
    if config.shared_storage is None:
        return
    mounter = Mounter(
        root=root,
        region=config.region,
        is_ours=config.shared_storage_resource is not None,
        directory=SharedDirectory(root),
        start_tunnel=lambda target: Tunnel(target).start(),
    )
    _run(mounter)


def _run(mounter: Mounter) -> NoReturn:
    while True:
        time.sleep(mounter.step() * random.SystemRandom().uniform(0.75, 1.25))
