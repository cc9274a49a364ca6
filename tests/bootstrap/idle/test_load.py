"""Test the signs of use of one node, from files like its kernel's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.contract import SETUP_STATE_FILE
from bootstrap.errors import CommandError
from bootstrap.idle.load import CPU_STAT, Load
from bootstrap.jobs.job_directories import JOBS
from launcher.paths import JOBS_DIR
from tests.bootstrap.idle.node_files import USER, lock_job, open_job, touch_terminal, write, write_counters
from tests.bootstrap.simulated_node import Clock

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
        loopback = int(self.clock.now) * 10**9
        write_counters(self.root, cpu_s=self.cpu_s, network=self.network, loopback=loopback)
        return self.load.busy_with()


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
    # Output, such as that of a progress bar or our own announcement, changes only the time of the last change.
    for name, input_at in (("0", NOW - age_s), ("ptmx", NOW)):
        touch_terminal(machine.root, name, input_at=input_at, output_at=NOW)
    assert machine.busy_after(30.0) == sign


@pytest.fixture
def job(machine: Machine) -> Iterator[int]:
    """Lock a job's directory, as each process of a job does."""
    opened = open_job(machine.root)
    lock_job(opened, runs=True)
    yield opened
    os.close(opened)


def test_running_job_keeps_the_node_busy_even_while_waiting(machine: Machine, job: int) -> None:
    assert JOBS == JOBS_DIR
    assert machine.busy_after(30.0) == "job"
    lock_job(job, runs=False)
    assert machine.busy_after(30.0) == ""


def test_node_whose_load_cannot_be_read_is_busy(machine: Machine) -> None:
    (machine.root / CPU_STAT).unlink()
    assert machine.load.busy_with().startswith("load cannot be read: [Errno 2]")


def test_waiting_setup_keeps_the_node_busy(machine: Machine) -> None:
    write(machine.root, SETUP_STATE_FILE.lstrip("/"), '{"state": "running", "sha256": "00", "failure": null}')
    assert machine.busy_after(60) == "setup"
    write(machine.root, SETUP_STATE_FILE.lstrip("/"), '{"state": "done", "sha256": "00", "failure": null}')
    assert machine.busy_after(60) == ""
