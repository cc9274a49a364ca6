"""Detect signs of use on this node: jobs, terminals, CPU, network and GPUs.

Programs outside ``launch`` count by their load. The thresholds separate a working node from one that only runs its
daemons. The thresholds of CPU and network apply to averages since the last sample (report.SAMPLE_S).
"""

import json
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bootstrap.contract import SETUP_RUNNING, SETUP_STATE_FILE
from bootstrap.errors import CommandError
from bootstrap.files.paths import under_root
from bootstrap.idle.detector import SILENT_AFTER_S
from bootstrap.jobs.job_directories import JOBS, entries, is_locked

BUSY_CORES: Final = 0.5
"""Average number of cores in use from which a node is busy. A single-threaded program fills one core of any machine,
while the daemons of an idle one use a few hundredths of one. A share of all cores would miss that program on a machine
with 192."""
BUSY_BYTES_PER_S: Final = 100_000
"""Bytes per second, sent and received, from which a node is busy. The slowest download worth waiting for has more. The
agents' polling has less: the master of 501 nodes reads 20,000 (600 bytes of each record every 15 s), a worker 1,000."""
BUSY_GPU_PERCENT: Final = 5
"""Utilization of the busiest GPU, in percent, from which a node is busy. It covers the last second or less, as
nvidia-smi shows it; an idle GPU shows 0."""
INPUT_S: Final = 45.0
"""Seconds after its last input for which a terminal counts as used: the time between two samples, plus the 8 s to which
the kernel rounds a terminal's times (tty_update_time)."""
CPU_STAT: Final = "sys/fs/cgroup/cpu.stat"
"""CPU time of all processes, in microseconds (Control Group v2, "cpu.stat")."""
NETWORK_STAT: Final = "proc/net/dev"
TERMINALS: Final = "dev/pts"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counters:
    at: float
    cpu_s: float
    network_bytes: int


@dataclass(kw_only=True)
class Load:
    """Load of one node; ``busy_with`` names the first sign of use."""

    root: Path
    user: str
    """Login user, whose home directory has the jobs."""
    gpu_percent: Callable[[], int | None]
    """Function that returns the utilization of the busiest GPU; None without one. Raises CommandError."""
    monotonic: Callable[[], float]
    wall_clock: Callable[[], float] = time.time
    _last: _Counters | None = field(default=None, init=False)
    _gpus_answered: float | None = field(default=None, init=False)

    def busy_with(self) -> str:
        """Return what keeps the node busy; empty if nothing does. A node whose load cannot be read counts as busy."""
        try:
            return self._first_sign()
        except (OSError, ValueError, IndexError) as error:
            return f"load cannot be read: {error}"

    def _first_sign(self) -> str:
        load = self._load_since_last()
        if self._has_job():
            return "job"
        if self._runs_setup():
            return "setup"
        if self._has_input():
            return "terminal"
        return load or ("gpu" if self._uses_gpu() else "")

    def _has_job(self) -> bool:
        jobs = self.root / pwd.getpwnam(self.user).pw_dir.lstrip("/") / JOBS
        return any(is_locked(directory) for directory in entries(jobs))

    def _runs_setup(self) -> bool:
        """Return True during ``dlcluster setup``, which may wait minutes for a server."""
        try:
            progress = json.loads(under_root(self.root, SETUP_STATE_FILE).read_text())
        except FileNotFoundError:
            return False
        return bool(progress["state"] == SETUP_RUNNING)

    def _has_input(self) -> bool:
        now = self.wall_clock()
        return any(
            now - entry.stat().st_atime <= INPUT_S for entry in entries(self.root / TERMINALS) if entry.name.isdigit()
        )

    def _load_since_last(self) -> str:
        """Compare the counters with the last sample's; the first sample finds nothing."""
        last, self._last = self._last, self._read_counters()
        if last is None or (elapsed := self._last.at - last.at) <= 0:
            return ""
        if (self._last.cpu_s - last.cpu_s) / elapsed >= BUSY_CORES:
            return "cpu"
        return "network" if (self._last.network_bytes - last.network_bytes) / elapsed >= BUSY_BYTES_PER_S else ""

    def _read_counters(self) -> _Counters:
        fields = (self.root / CPU_STAT).read_text().split()
        cpu_us = int(fields[fields.index("usage_usec") + 1])
        rows = [line.partition(":") for line in (self.root / NETWORK_STAT).read_text().splitlines()[2:]]
        # The first column after the name counts bytes received, the ninth bytes sent: proc_net_dev(5).
        counts = [row.split() for name, _, row in rows if name.strip() != "lo"]
        sent_and_received = sum(int(row[0]) + int(row[8]) for row in counts)
        return _Counters(at=self.monotonic(), cpu_s=cpu_us / 1e6, network_bytes=sent_and_received)

    def _uses_gpu(self) -> bool:
        """Return True if a GPU is in use; one that does not answer counts as in use for SILENT_AFTER_S."""
        now = self.monotonic()
        if self._gpus_answered is None:
            self._gpus_answered = now
        try:
            percent = self.gpu_percent()
        except CommandError:
            return now - self._gpus_answered <= SILENT_AFTER_S
        self._gpus_answered = now
        return percent is not None and percent >= BUSY_GPU_PERCENT
