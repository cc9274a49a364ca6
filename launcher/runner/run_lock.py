"""Lock a job on this node, so that two runs never share GPUs and memory.

After a hang or a network failure, the launcher may ask a node to restart the job before the last run has ended. The
lock file contains the grace period, for which the agent delays the end of a node whose ranks run
(bootstrap.jobs.rank_grace).
"""

import fcntl
import os
import select
import time

from launcher.job_directories import write_grace
from launcher.paths import JOBS_DIR
from launcher.runner.fast_imports import TYPE_CHECKING
from launcher.runner.runner_channel import RunnerChannel
from launcher.transport.protocol import AFTER_GRACE_S

if TYPE_CHECKING:
    from launcher.spec import NodeSpec

POLL_S = 0.1


def acquire_run_lock(spec: "NodeSpec", channel: RunnerChannel, *, home: str) -> bool:
    """Wait until no other process runs the job on this host, and lock it; return False after the deadline."""
    try:
        lock = _open(f"{home}/{JOBS_DIR}/{spec.job_id}/.{spec.host.replace('/', '-')}.lock")
    except OSError:
        return True  # Nothing can be written here, which another module reports.
    until = time.monotonic() + spec.grace_s + AFTER_GRACE_S
    while not _try_lock(lock) and not channel.stop_requested:
        if time.monotonic() > until:
            return False
        _exchange_heartbeats(channel)
    write_grace(lock, spec.grace_s)
    return True


def _open(path: str) -> int:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # The file system does not support locks.
    return True


def _exchange_heartbeats(channel: RunnerChannel) -> None:
    """Exchange heartbeats for a moment."""
    timeout = min(channel.keep_alive(), POLL_S)
    select.select([channel.source], [channel.sink] if channel.has_pending else [], [], timeout)
    channel.flush()
    channel.receive()
