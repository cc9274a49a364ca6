"""Keep the runner for another job while the files that a login session depends on are unchanged.

The fingerprint covers the files from which a session is created: see sshd(8), login process; pam_env(8); pam_limits(8);
bash(1), invocation.
"""

import os
import select
import time
from _collections_abc import Callable  # importing collections is slow

from launcher.runner.runner_channel import RunnerChannel
from launcher.transport.protocol import HEARTBEAT_TIMEOUT_S, WAKE, FrameType, encode

IDLE_TIMEOUT_S = 75.0
"""Seconds to wait for a job; the pool (launcher.transport.pool) drops the connection earlier."""
FILES = (
    "/etc/passwd",
    "/etc/shadow",
    "/etc/group",
    "/etc/environment",
    "/etc/profile",
    "/etc/bash.bashrc",
    "/etc/zsh/zshenv",
    "/etc/default/locale",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/login.defs",
    "/etc/deeplearning/authorized_keys",
    "/etc/nologin",
    "/run/nologin",
    "~/.bashrc",
    "~/.bash_profile",
    "~/.profile",
    "~/.zshenv",
    "~/.pam_environment",
)
DIRECTORIES = (
    "/etc/profile.d",
    "/etc/pam.d",
    "/etc/security",
    "/etc/security/limits.d",
    "/etc/ssh",
    "/etc/ssh/sshd_config.d",
    "~/.ssh",
)
"""Directories of which every file counts."""

SessionFingerprint = list[object]


def session_fingerprint() -> SessionFingerprint:
    """Fingerprint what the session depends on: the release, the home directory, and the files' state."""
    home = os.path.expanduser("~")
    files, directories = (
        [home + name[1:] if name[0] == "~" else name for name in paths] for paths in (FILES, DIRECTORIES)
    )
    inside = [f"{directory}/{name}" for directory in directories for name in _names(directory)]
    return [os.path.realpath(__file__), _inode(home), inside, *map(_stat_key, (*files, *directories, *inside))]


def report_idle(*, sink: int = 1) -> bool:
    """Report that the last job is cleaned up and the runner can be woken; return False if nobody reads the report."""
    try:
        return (
            bool(select.select([], [sink], [], HEARTBEAT_TIMEOUT_S)[1])
            and os.write(sink, encode(FrameType.IDLE, b"")) > 0
        )
    except OSError:
        return False


def wait_for_wake(
    channel: RunnerChannel, *, seconds: float = IDLE_TIMEOUT_S, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Wait until a launch wakes this runner; return False if none does in time."""
    received, until = b"", clock() + seconds
    while not channel.stop_requested and (left := until - clock()) > 0:
        select.select([channel.source], [channel.sink] if channel.has_pending else [], [], left)
        channel.flush()
        # Skip heartbeats sent before the runner became idle.
        received = (received + channel.receive()).lstrip(b"\n")
        if received or channel.stop_requested:
            return received == WAKE
    return False


def _stat_key(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode, status.st_uid, status.st_gid


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _inode(path: str) -> object:
    """Identify a home directory by its inode; its times change whenever files in it come and go."""
    try:
        status = os.stat(path)
        return status.st_dev, status.st_ino
    except OSError as error:
        return error.errno
