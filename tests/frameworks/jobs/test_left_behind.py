"""Test from outside that nothing is left on the nodes when a part of a job is killed, frozen or disconnected."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from local.faults import Faults
from tests.frameworks.mxnet_cluster import WORKERS, MxnetCluster
from tests.frameworks.observed_job import ObservedJob, observed_job
from tests.waiting import wait_until

END_LIMIT_S = 120
"""Deadline in seconds for the end of the job and all of its processes."""
SSH_FAILED = 255
"""Exit code of ssh when the command was ended by a signal."""
ORTE_DAEMON_LOST = 205
"""Exit code of mpirun when it has lost the daemon of another node."""
MPI_OPTIONS = "--launcher mpi -n 2"
ALL_REDUCE = (
    "import horovod.mxnet as hvd, mxnet as mx, itertools; hvd.init()\n"
    "for step in itertools.count():\n"
    "    hvd.allreduce(mx.nd.ones(1000), name='ones').asnumpy()\n"
    "    step or print('connected', flush=True)"
)
PARAMETER_SERVER_RANK = (
    "import mxnet as mx, time; mx.kv.create('dist_sync').init(0, mx.nd.ones(1));"
    "print('connected', flush=True); time.sleep(1000)"
)
SIGTERM_IGNORING_RANK = "trap '' TERM; setsid sleep 1000 & echo connected; while :; do sleep 1000; done"
"""Rank that ignores TERM, with a child that has left its session."""


class CutOffJobs:
    """Watches jobs that are disconnected from everything."""

    def __init__(self, jobs: dict[str, ObservedJob], frozen: int) -> None:
        self.jobs = jobs
        self._frozen = frozen
        self._began = time.monotonic()
        self.gone: dict[str, float] = {}
        """Time at which nothing of each job was left on any node, in seconds."""
        os.kill(frozen, signal.SIGSTOP)
        Faults.current().partition(WORKERS[2])
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def _watch(self) -> None:
        try:
            while len(self.gone) < len(self.jobs) and time.monotonic() < self._began + END_LIMIT_S:
                for name, job in self.jobs.items():
                    # The frozen launcher is not a rank, and cannot act.
                    if name not in self.gone and not job.processes():
                        self.gone[name] = time.monotonic() - self._began
                time.sleep(0.5)
        finally:
            Faults.current().end_partition(WORKERS[2])
            os.kill(self._frozen, signal.SIGCONT)

    def wait(self) -> None:
        self._watching.join(2 * END_LIMIT_S)


@pytest.fixture(scope="module")
def cut_off_jobs(cluster: MxnetCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutOffJobs]:
    """Disconnect a node under two jobs, and freeze a launcher."""
    logs = tmp_path_factory.mktemp("logs")
    cluster.on_master(f"printf '{WORKERS[0]}\\n{WORKERS[2]}\\n' > first-and-last")
    with ExitStack() as stack:

        def start(name: str, launch: str, *command: str) -> ObservedJob:
            return stack.enter_context(observed_job(cluster, launch, *command, log=logs / name))

        jobs = {
            "mpi": start("mpi", "--launcher mpi -H first-and-last", SIGTERM_IGNORING_RANK),
            "mxnet": start("mxnet", "-s 2 -H first-and-last", "python", "-c", PARAMETER_SERVER_RANK),
            "frozen": start("frozen", MPI_OPTIONS, SIGTERM_IGNORING_RANK),
        }
        for job in jobs.values():
            job.wait_for("connected", times=2)
        cut_off_jobs = CutOffJobs(jobs, jobs["frozen"].launcher())
        yield cut_off_jobs
        cut_off_jobs.wait()


# The jobs to kill run on the other nodes while the deadlines of these pass.


@pytest.mark.usefixtures("cut_off_jobs")
def test_killed_rank_of_horovod_ends_mpiruns_job(cluster: MxnetCluster, tmp_path: Path) -> None:
    with observed_job(cluster, MPI_OPTIONS, "python", "-c", ALL_REDUCE, log=tmp_path / "log") as job:
        job.wait_for("connected", times=2)
        [victim] = job.processes("hvd.init()", below="orted")
        os.kill(victim, signal.SIGKILL)
        assert job.code() == 137, job.output
        job.wait_until_gone(seconds=END_LIMIT_S / 2)


@pytest.mark.usefixtures("cut_off_jobs")
@pytest.mark.parametrize(("victim", "code"), [("launcher", SSH_FAILED), ("mpiexec", 137), ("orted", None)])
def test_killed_part_of_an_mpirun_job_leaves_nothing(
    cluster: MxnetCluster, tmp_path: Path, victim: str, code: int | None
) -> None:
    with observed_job(cluster, MPI_OPTIONS, SIGTERM_IGNORING_RANK, log=tmp_path / "log") as job:
        job.wait_for("connected", times=2)
        # On each node: a rank, its child outside the session, and what the child waits for.
        wait_until(lambda: len(job.processes("sleep 1000")) >= 2 * 3, "all processes", timeout_s=END_LIMIT_S)
        pid = job.launcher() if victim == "launcher" else job.processes(f"/bin/{victim}")[-1]
        os.kill(pid, signal.SIGKILL)
        ended = job.code()
        assert ended == code if code else ended != 0, job.output
        job.wait_until_gone(seconds=END_LIMIT_S / 2)


@pytest.mark.parametrize("name", ["mpi", "mxnet", "frozen"])
def test_job_cut_off_from_its_launcher_leaves_nothing(cut_off_jobs: CutOffJobs, name: str) -> None:
    cut_off_jobs.wait()
    job = cut_off_jobs.jobs[name]
    assert name in cut_off_jobs.gone, ([*cut_off_jobs.gone], job.processes(), job.output)
    if name == "frozen":
        # The thawed launcher may read either first: that a node was lost, or that mpirun ended because its daemon was.
        assert job.code() in (1, ORTE_DAEMON_LOST), job.output
    else:
        assert job.code() == 1, job.output
        assert f"{WORKERS[2]}: lost: silent for" in job.output
