"""Break nodes under jobs: each job must end or restart as configured, in time, and leave nothing on any node.

    python -m local run -- python -m local.chaos.job --rounds 50 --seed 7     (make soak)

deploys a master and two workers first. The same seed gives the same faults. local.chaos.job_rounds defines a round.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local.chaos.job_rounds import ANSWER_S, MOMENTS, Round, Strike, Told, draw, judge
from local.chaos.jobs import Job, endings, leave_connections
from local.chaos.leftovers import kept_connections, left_behind, ranks_of
from local.chaos.observer import Observer
from local.errors import LocalError
from local.faults.harness import Faults
from local.faults.nodes import NodeHandle, await_true
from local.run.user import User, deploy_arguments, new_user

NODES = 3
CLUSTER = "deeplearning"
LASTS_S = 30.0
"""Duration of freezes and partitions: longer than the heartbeat timeout after which a node counts as lost."""
WHOLE_S = 240.0
POLL_S = 0.25
START_S = 60.0
"""How long a job may take to start on a busy machine."""
STEPPING_S, MEETING_S, CONNECTING_S = 3.0, 2.0, 0.8
"""Lengths of the phases in which a fault can come."""
AFTER_S = 10.0
"""How long after the answer's deadline processes of an ended job may remain."""


def run_rounds(cluster: str, *, user: User, seed: int, rounds: int, say: Callable[[str], None]) -> list[str]:
    """Run `rounds` rounds on a whole cluster; return what was wrong, a line each."""
    faults, observer = Faults.here(), Observer.here(cluster, environment=user.environment)
    wrong: list[str] = []
    taken = 0
    for strike in draw(seed, rounds=rounds, slots=range(1, NODES + 1)):
        observer.await_agreement(WHOLE_S)
        say(str(strike))
        scene = Scene(strike, cluster=cluster, user=user, faults=faults, observer=observer, say=say)
        wrong += [f"{strike}: {line}" for line in scene.play()]
        taken += scene.taken
    observer.await_agreement(WHOLE_S)
    return wrong if taken else [*wrong, "no job took a connection that an earlier one had left"]


class Scene:
    """Run one fault with its jobs."""

    def __init__(
        self,
        strike: Strike,
        *,
        cluster: str,
        user: User,
        faults: Faults,
        observer: Observer,
        say: Callable[[str], None],
    ) -> None:
        self._strike = strike
        self._user = user
        self._faults = faults
        self._observer = observer
        self._say = say
        self._token = uuid.uuid4().hex
        self._cluster = cluster
        self.taken = 0
        """Number of pooled connections that the first job took over from an earlier one."""

    def play(self) -> list[str]:
        """Start the jobs, cause the fault, heal, and check every job and one more after it."""
        self._leave_connections()
        kept = kept_connections()
        jobs = self._start_jobs(kept)
        waiting = len(kept_connections())
        self._say(f"  {self.taken} of {len(kept)} kept connections taken, {waiting} struck while they wait")
        node = self._faults.node(self._faults.slots(self._cluster)[self._strike.slot])
        struck = time.monotonic()
        with ThreadPoolExecutor(len(jobs)) as pool:
            outlived = [pool.submit(self._outlived, job, struck=struck) for job in jobs]
            try:
                whole_s = self._strike_and_heal(node) - struck
                for job in jobs:
                    job.await_end(until=struck + whole_s + 2 * ANSWER_S)
                told = [(job, job.told(since=struck)) for job in jobs]
            finally:
                for job in jobs:
                    job.leave()
        again = leave_connections(self._user)
        found = [f"the next job: {again}"] if again else []
        known = endings(self._user)
        for job, said in told:
            said.ending = known.get(job.token)
            found += self._judge(job.round, said, whole_s=whole_s)
        found += [line for lines in outlived for line in lines.result()]
        return found + self._strays(until=max(struck + ANSWER_S, time.monotonic() + AFTER_S))

    def _outlived(self, job: Job, *, struck: float) -> list[str]:
        """List ranks that run too long, on any node: of the failed attempt, and after the end of the job."""
        answered, found = struck + ANSWER_S, []
        if not job.await_end(until=answered):
            found = ranks_of(job.token, before=struck)
            job.await_end(until=answered + 2 * WHOLE_S)
        until = max(answered, time.monotonic() + AFTER_S)
        while (left := ranks_of(job.token)) and time.monotonic() < until:
            time.sleep(POLL_S)
        return [f"{job.round.moment} ({job.round.wish}): outlives its job: {line}" for line in sorted({*found, *left})]

    def _leave_connections(self) -> None:
        if wrong := leave_connections(self._user):
            raise LocalError(wrong)

    def _start_jobs(self, kept: set[str]) -> list[Job]:
        """Start the jobs so that the fault hits each in its phase."""
        jobs = []
        for one in sorted(self._strike.rounds, key=lambda one: MOMENTS.index(one.moment), reverse=True):
            job = Job(self._user, one, token=f"{self._token}.{one.moment}")
            jobs.append(job)
            if one.moment == "stepping":
                job.await_line("goes on at", timeout_s=START_S)
                time.sleep(one.fraction * STEPPING_S)
                still, waiting = {pid for pid in kept if Path("/proc", pid).exists()}, kept_connections()
                self.taken = len(still - waiting)
                # The next jobs need idle connections too, and must not wait for them in the phase that is tested.
                self._leave_connections()
            elif one.moment == "meeting":
                job.await_line("meets", timeout_s=START_S)
                time.sleep(one.fraction * MEETING_S)
            else:
                time.sleep(one.fraction * CONNECTING_S)
        return jobs

    def _strike_and_heal(self, node: NodeHandle) -> float:
        """Break the node, undo what has a duration, and return the time at which the cluster was whole again."""
        name, kind = node.instance_id, self._strike.kind
        if kind == "kill":
            self._faults.kill(name)
            slot = self._strike.slot
            self._await(lambda: self._faults.slots(self._cluster).get(slot, name) != name, "a replacement")
        elif kind == "reboot":
            before = node.init()
            self._faults.reboot(name)
            self._await(lambda: node.is_up and node.init() != before, "the reboot")
        else:
            begin, end = (
                (self._faults.freeze, self._faults.thaw)
                if kind == "freeze"
                else (self._faults.partition, self._faults.reconnect)
            )
            begin(name)
            time.sleep(LASTS_S)
            end(name)
        self._observer.await_agreement(WHOLE_S)
        return time.monotonic()

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        await_true(condition, what, timeout_s=WHOLE_S, every_s=POLL_S)

    def _judge(self, one: Round, told: Told, *, whole_s: float) -> list[str]:
        found = judge(told, one, strike=self._strike, whole_s=whole_s)
        lines = [f"    {at:6.1f} s  {line}" for at, line in told.lines if found or line.startswith("launch: ")]
        end = "was left" if told.ended_s is None else f"ended with {told.code} after {told.ended_s:.1f} s"
        if told.ending is not None:
            end += f" ({told.ending.state}, {told.ending.exit_code})"
        self._say("\n".join([f"  {one.moment} ({one.wish}) {end}; whole after {whole_s:.1f} s", *lines]))
        return [f"{one.moment} ({one.wish}): {line}" for line in found]

    def _strays(self, *, until: float) -> list[str]:
        while (found := left_behind(self._token)) and time.monotonic() < until:
            time.sleep(0.5)
        return [f"still runs: {line}" for line in found]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m local.chaos.job", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=50, help="how many jobs are struck, three by each fault")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with new_user() as user:
        user.cdk("bootstrap")
        user.cdk(*deploy_arguments(nodes=NODES))
        user.write_ssh_config()
        wrong = run_rounds(CLUSTER, user=user, seed=options.seed, rounds=options.rounds, say=_say)
        user.cdk("destroy", "--force")
    _say("\n".join(wrong) or f"{options.rounds} rounds, nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
