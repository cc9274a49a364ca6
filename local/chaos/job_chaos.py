"""Break nodes under jobs: each job must end or restart as configured, in time, and leave nothing on any node.

    python -m local run -- python -m local.chaos.job_chaos --cases 50 --seed 7     (make soak)

deploys a master and two workers first. The same seed gives the same faults. local.chaos.job_cases defines a case.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local.chaos.job_cases import PHASES, REACTION_TIMEOUT_S, JobCase, JobFault, JobOutcome, draw_faults, judge
from local.chaos.leftovers import find_ranks, idle_connections, leftover_processes
from local.chaos.observer import ClusterObserver
from local.chaos.user_job import Job, fill_connection_pool, recorded_ends
from local.errors import LocalError
from local.faults.faults import Faults
from local.faults.node_handle import NodeHandle, wait_until
from local.run.user import User, deploy_arguments, temporary_user

NODES = 3
CLUSTER = "deeplearning"
FAULT_DURATION_S = 30.0
"""Seconds that freezes and partitions last: longer than the heartbeat timeout after which a node counts as lost."""
RECOVERY_TIMEOUT_S = 240.0
POLL_S = 0.25
START_S = 60.0
"""Deadline for a job to start, in seconds, even on a busy machine."""
STEPPING_S, RENDEZVOUS_S, CONNECTING_S = 3.0, 2.0, 0.8
"""Lengths in seconds of the phases in which a fault can occur."""
CLEANUP_S = 10.0
"""Seconds after the reaction deadline for which an ended job's processes may remain."""


def run_cases(cluster: str, *, user: User, seed: int, cases: int, log: Callable[[str], None]) -> list[str]:
    """Run jobs under faults on a healthy cluster; return what was wrong, one line each."""
    faults, observer = Faults.current(), ClusterObserver.current(cluster, environment=user.environment)
    errors: list[str] = []
    reused = 0
    for fault in draw_faults(seed, cases=cases, node_indexes=range(1, NODES + 1)):
        observer.wait_for_agreement(RECOVERY_TIMEOUT_S)
        log(str(fault))
        fault_run = FaultRun(fault, cluster=cluster, user=user, faults=faults, observer=observer, log=log)
        errors += [f"{fault}: {line}" for line in fault_run.run()]
        reused += fault_run.reused
    observer.wait_for_agreement(RECOVERY_TIMEOUT_S)
    return errors if reused else [*errors, "no job reused an idle connection"]


class FaultRun:
    """Runs one fault with its jobs."""

    def __init__(
        self,
        fault: JobFault,
        *,
        cluster: str,
        user: User,
        faults: Faults,
        observer: ClusterObserver,
        log: Callable[[str], None],
    ) -> None:
        self._fault = fault
        self._user = user
        self._faults = faults
        self._observer = observer
        self._log = log
        self._token = uuid.uuid4().hex
        self._cluster = cluster
        self.reused = 0
        """Number of pooled connections that the first job reused from an earlier one."""

    def run(self) -> list[str]:
        """Start the jobs, cause the fault, undo it, and check every job and one more afterwards."""
        self._fill_connection_pool()
        idle = idle_connections()
        jobs = self._start_jobs(idle)
        waiting = len(idle_connections())
        self._log(f"  {self.reused} of {len(idle)} idle connections reused, {waiting} hit while idle")
        node = self._faults.node(self._faults.instances(self._cluster)[self._fault.node_index])
        fault_at = time.monotonic()
        with ThreadPoolExecutor(len(jobs)) as pool:
            orphans = [pool.submit(self._orphaned_ranks, job, fault_at=fault_at) for job in jobs]
            try:
                recovered_s = self._break_and_heal(node) - fault_at
                for job in jobs:
                    job.wait_for_end(until=fault_at + recovered_s + 2 * REACTION_TIMEOUT_S)
                outcomes = [(job, job.outcome(since=fault_at)) for job in jobs]
            finally:
                for job in jobs:
                    job.close()
        pool_error = fill_connection_pool(self._user)
        problems = [f"the next job: {pool_error}"] if pool_error else []
        ends = recorded_ends(self._user)
        for job, outcome in outcomes:
            outcome.recorded_end = ends.get(job.token)
            problems += self._judge(job.case, outcome, recovered_s=recovered_s)
        problems += [line for lines in orphans for line in lines.result()]
        return problems + self._leftovers(until=max(fault_at + REACTION_TIMEOUT_S, time.monotonic() + CLEANUP_S))

    def _orphaned_ranks(self, job: Job, *, fault_at: float) -> list[str]:
        """List ranks that run too long, on any node: from the failed attempt, and after the end of the job."""
        reaction_deadline, orphans = fault_at + REACTION_TIMEOUT_S, []
        if not job.wait_for_end(until=reaction_deadline):
            orphans = find_ranks(job.token, before=fault_at)
            job.wait_for_end(until=reaction_deadline + 2 * RECOVERY_TIMEOUT_S)
        until = max(reaction_deadline, time.monotonic() + CLEANUP_S)
        while (remaining := find_ranks(job.token)) and time.monotonic() < until:
            time.sleep(POLL_S)
        return [
            f"{job.case.phase} ({job.case.policy}): outlives its job: {line}" for line in sorted({*orphans, *remaining})
        ]

    def _fill_connection_pool(self) -> None:
        if errors := fill_connection_pool(self._user):
            raise LocalError(errors)

    def _start_jobs(self, idle: set[str]) -> list[Job]:
        """Start the jobs so that the fault affects each in its phase."""
        jobs = []
        for job_case in sorted(self._fault.cases, key=lambda job_case: PHASES.index(job_case.phase), reverse=True):
            job = Job(self._user, job_case, token=f"{self._token}.{job_case.phase}")
            jobs.append(job)
            if job_case.phase == "stepping":
                job.wait_for_line("resumes at", timeout_s=START_S)
                time.sleep(job_case.fraction * STEPPING_S)
                still, waiting = {pid for pid in idle if Path("/proc", pid).exists()}, idle_connections()
                self.reused = len(still - waiting)
                # The next jobs also need idle connections, and must not wait for them in the tested phase.
                self._fill_connection_pool()
            elif job_case.phase == "rendezvous":
                job.wait_for_line("joins", timeout_s=START_S)
                time.sleep(job_case.fraction * RENDEZVOUS_S)
            else:
                time.sleep(job_case.fraction * CONNECTING_S)
        return jobs

    def _break_and_heal(self, node: NodeHandle) -> float:
        """Break the node, undo temporary faults, and return the time at which the cluster was healthy again."""
        name, kind = node.instance_id, self._fault.kind
        if kind == "kill":
            self._faults.kill(name)
            node_index = self._fault.node_index
            self._wait_until(
                lambda: self._faults.instances(self._cluster).get(node_index, name) != name, "a replacement"
            )
        elif kind == "reboot":
            before = node.init()
            self._faults.reboot(name)
            self._wait_until(lambda: node.is_up and node.init() != before, "the reboot")
        else:
            begin, end = (
                (self._faults.freeze, self._faults.end_freeze)
                if kind == "freeze"
                else (self._faults.partition, self._faults.end_partition)
            )
            begin(name)
            time.sleep(FAULT_DURATION_S)
            end(name)
        self._observer.wait_for_agreement(RECOVERY_TIMEOUT_S)
        return time.monotonic()

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, timeout_s=RECOVERY_TIMEOUT_S, every_s=POLL_S)

    def _judge(self, job_case: JobCase, outcome: JobOutcome, *, recovered_s: float) -> list[str]:
        problems = judge(outcome, job_case, fault=self._fault, recovered_s=recovered_s)
        lines = [f"    {at:6.1f} s  {line}" for at, line in outcome.lines if problems or line.startswith("launch: ")]
        end = "was left" if outcome.ended_s is None else f"ended with {outcome.code} after {outcome.ended_s:.1f} s"
        if outcome.recorded_end is not None:
            end += f" ({outcome.recorded_end.state}, {outcome.recorded_end.exit_code})"
        self._log("\n".join([f"  {job_case.phase} ({job_case.policy}) {end}; whole after {recovered_s:.1f} s", *lines]))
        return [f"{job_case.phase} ({job_case.policy}): {line}" for line in problems]

    def _leftovers(self, *, until: float) -> list[str]:
        while (leftovers := leftover_processes(self._token)) and time.monotonic() < until:
            time.sleep(0.5)
        return [f"still runs: {line}" for line in leftovers]


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m local.chaos.job_chaos", allow_abbrev=False)
    parser.add_argument(
        "--cases", metavar="N", type=int, default=50, help="number of cases, each one job; up to three per fault"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with temporary_user() as user:
        user.cdk("bootstrap")
        user.cdk(*deploy_arguments(nodes=NODES))
        user.write_ssh_config()
        errors = run_cases(CLUSTER, user=user, seed=options.seed, cases=options.cases, log=_log)
        user.cdk("destroy", "--force")
    _log("\n".join(errors) or f"{options.cases} cases, nothing wrong")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
