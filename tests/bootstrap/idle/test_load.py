"""Test the signs of use of one node, from files like its kernel's."""

import fcntl
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.contract import SETUP_STATE
from bootstrap.errors import CommandError
from bootstrap.idle.load import CPU_STAT, JOBS, NETWORK_STAT, TERMINALS, Load
from launcher.paths import JOBS_DIR
from tests.bootstrap.simulated_cluster import Clock

USER = pwd.getpwuid(os.getuid())
NOW = 1_800_000_000.0


class Machine:
    """One node's files, which the test changes."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.gpu = root, Clock(), 0
        self.cpu_s, self.network = 0.0, 0
        self.load = Load(
            root=root,
            user=USER.pw_name,
            gpu_percent=self._gpu_percent,
            monotonic=self.clock,
            wall_clock=lambda: NOW,
        )
        self.busy_after(0.0)

    def _gpu_percent(self) -> int:
        if self.gpu < 0:
            raise CommandError("nvidia-smi failed")
        return self.gpu

    def busy_after(self, seconds: float, *, cpu_s: float = 0.0, network: int = 0) -> str:
        """Return the sign of use after some seconds with this load."""
        self.clock.now += seconds
        self.cpu_s, self.network = self.cpu_s + cpu_s, self.network + network
        self.write(CPU_STAT, f"usage_usec {int(self.cpu_s * 1e6)}\nuser_usec 1\n")
        row = f"{self.network // 2} 0 0 0 0 0 0 0 {self.network // 2} 0 0 0 0 0 0 0"
        loopback = f"{int(self.clock.now) * 10**9} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        self.write(NETWORK_STAT, f"Inter-|\n face |\n    lo: {loopback}\n  ens5: {row}\n")
        return self.load.busy_with()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("cpu_s", "network", "sign"),
    [(0.0, 0, ""), (3.0, 600_000, ""), (30.0, 0, "cpu"), (0.0, 6_000_000, "network")],
)
def test_load_is_averaged_since_the_last_sample(machine: Machine, cpu_s: float, network: int, sign: str) -> None:
    assert machine.busy_after(30.0, cpu_s=cpu_s, network=network) == sign
    assert machine.busy_after(30.0) == ""


def test_unreadable_gpu_counts_as_busy_for_ten_minutes(machine: Machine) -> None:
    signs = []
    for percent in (4, 5, -1, -1, -1):
        machine.gpu = percent
        signs.append(machine.busy_after(300.0))
    assert signs == ["", "gpu", "gpu", "gpu", ""]


@pytest.mark.parametrize(("age_s", "sign"), [(10.0, "terminal"), (60.0, "")])
def test_only_input_to_a_terminal_makes_a_node_busy(machine: Machine, age_s: float, sign: str) -> None:
    """Output, such as that of a progress bar or our own announcement, changes only the time of the last change."""
    terminals = machine.root / TERMINALS
    terminals.mkdir(parents=True)
    for name, read_at in (("0", NOW - age_s), ("ptmx", NOW)):
        (terminals / name).touch()
        os.utime(terminals / name, (read_at, NOW))
    assert machine.busy_after(30.0) == sign


@pytest.fixture
def job(machine: Machine) -> Iterator[int]:
    """Lock a job's directory, as each process of a job does."""
    directory = machine.root / USER.pw_dir.lstrip("/") / JOBS / "20261201-000000-abc"
    directory.mkdir(parents=True)
    lock = os.open(directory, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    yield lock
    os.close(lock)


def test_running_job_keeps_the_node_busy_even_while_waiting(machine: Machine, job: int) -> None:
    assert JOBS == JOBS_DIR
    assert machine.busy_after(30.0) == "job"
    fcntl.flock(job, fcntl.LOCK_UN)
    assert machine.busy_after(30.0) == ""


def test_a_node_whose_load_cannot_be_read_is_busy(machine: Machine) -> None:
    (machine.root / CPU_STAT).unlink()
    assert machine.load.busy_with().startswith("load cannot be read: [Errno 2]")


def test_waiting_setup_keeps_the_node_busy(machine: Machine) -> None:
    machine.write(SETUP_STATE.lstrip("/"), '{"doing": "running", "sha256": "00", "failure": null}')
    assert machine.busy_after(60) == "setup"
    machine.write(SETUP_STATE.lstrip("/"), '{"doing": "done", "sha256": "00", "failure": null}')
    assert machine.busy_after(60) == ""
