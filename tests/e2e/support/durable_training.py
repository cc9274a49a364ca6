"""Run a durable training whose result does not depend on how often, and where, it is interrupted."""

import json
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from local.run.user import User
from tests.e2e.support.deployed_cluster import NODES
from tests.e2e.support.durable_programs import OWN_SCRIPT, STEPS, Program
from tests.waiting import wait_until

MASTER = "deeplearning-master"
BOOT_S = 300.0
START_S = 120.0
END_S = 300.0
CANNOT_TELL = "cannot tell where this job keeps its checkpoints"


def status(user: User) -> dict[str, object]:
    return dict(json.loads(user.output("dlcluster", "status", "--json")))


def wait_for_nodes(user: User) -> None:
    wait_until(lambda: status(user)["running_nodes"] == NODES, "all nodes", timeout_s=BOOT_S, every_s=2.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One durable job; its checkpoint has the training's name."""

    user: User
    name: str
    job: str
    program: Program

    @classmethod
    def begin(cls, user: User, name: str, *, slow_until: datetime, program: Program = OWN_SCRIPT) -> "Training":
        """Submit the training, which does not end before that time; return it once it runs."""
        user.ssh(MASTER, f"mkdir -p code && cat > code/{program.file} <<'END'\n{program.source}END\n")
        options = f"--sync-dst-dir work --env SLOW_UNTIL:{slow_until.timestamp():.0f}"
        output = user.ssh(MASTER, f"cd code && launch --durable {options} {program.line.format(name=name)} 2>&1")
        assert CANNOT_TELL not in output
        training = cls(user=user, name=name, job=output.split()[-1], program=program)
        wait_until(lambda: program.begun in training.log(), "the training", timeout_s=START_S, every_s=1.0)
        return training

    def wait_for_restart(self) -> None:
        """Wait until a new master's attempt goes on at a saved step."""
        wait_until(lambda: self.program.resumed_steps(self.log()), "the next attempt", timeout_s=BOOT_S, every_s=2.0)

    def log(self) -> str:
        try:
            return self.user.ssh(MASTER, f"launch logs {self.job} 2>/dev/null || true")
        except subprocess.CalledProcessError:
            return ""

    def saved_step(self) -> int:
        """Return the step of the last checkpoint; 0 if there is none."""
        return self.program.saved_step(self.name)

    def check_end(self, *, least_attempts: int, step: int) -> None:
        """Check that an attempt went on at a step to the end, and that an undisturbed run has the same bits.

        A start that fails, as one may after the loss of the master, is tried again: hence the least number of attempts.
        """
        weights = re.compile(self.program.weights)
        wait_until(lambda: weights.search(self.log()), "the durable training's end", timeout_s=END_S, every_s=2.0)
        ended = wait_for_end(self.user, self.job)
        assert (ended["state"], ended["exit_code"]) == ("SUCCEEDED", 0), ended
        assert ended["attempt"] >= least_attempts, ended
        log = self.log()
        assert self.program.resumed_steps(log) == [step]
        assert 0 < step < STEPS
        line = self.program.line.format(name=f"{self.name}-undisturbed")
        undisturbed = self.user.ssh(MASTER, f"cd work && launch --wait {line} 2>&1")
        assert self.program.begun in undisturbed
        assert self.program.resumed_steps(undisturbed) == []
        assert weights.findall(log) == weights.findall(undisturbed) != []


def wait_for_end(user: User, job: str) -> dict[str, Any]:
    """Wait until a job has ended; return its record."""
    read = f"launch status --json {job}"
    wait_until(lambda: '"end": null' not in user.ssh(MASTER, read), "the job's end", timeout_s=START_S)
    return dict(json.loads(user.ssh(MASTER, read)))


def now() -> datetime:
    return datetime.now(timezone.utc)
