"""Run a durable training whose result does not depend on how often, and where, it is interrupted."""

import json
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone

from local.faults.clients import client
from local.run.user import User
from tests.e2e.conftest import NODES, stack_outputs
from tests.waiting import await_true

MASTER = "deeplearning-master"
BOOT_S = 300.0
START_S = 120.0
END_S = 180.0
STEPS = 4000
SLOW_STEP_S = 0.1
"""Seconds that a step takes before the time at which the training may end."""
SCRIPT = f"""\
import hashlib, os, signal, subprocess, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, place = dist.get_rank(), os.environ["CHECKPOINT"]
torch.manual_seed(7)
model = torch.nn.Linear(32, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))


def copy(*words):
    return subprocess.run(["aws", "s3", "cp", "--quiet", *words], check=False).returncode == 0


def save(step):
    torch.save({{"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}}, "/tmp/net.pt")
    assert copy("--metadata", f"step={{step}}", "/tmp/net.pt", place)


saved = [None]
if rank == 0 and copy(place, "/tmp/net.pt"):
    saved = [torch.load("/tmp/net.pt", map_location="cpu")]
dist.broadcast_object_list(saved, src=0)
begin = 0
if saved[0] is not None:
    begin = saved[0]["step"]
    model.load_state_dict(saved[0]["model"])
    optimizer.load_state_dict(saved[0]["optimizer"])
if rank == 0:
    print("goes on at step", begin, flush=True)
slow_until = float(os.environ.get("SLOW_UNTIL", "0"))
for step in range(begin, {STEPS}):
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
    batch = torch.randn(16, 32, generator=generator)
    optimizer.zero_grad()
    (model(batch) - batch[:, :8]).square().mean().backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
    is_slow = time.time() < slow_until
    time.sleep({SLOW_STEP_S} if is_slow else 0)
    if rank == 0 and (ends or (is_slow and step % 100 == 99)):
        save(step + 1)
    if ends:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
if rank == 0:
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
"""


def status(user: User) -> dict[str, object]:
    return dict(json.loads(user.output("dlcluster", "status", "--json")))


def await_nodes(user: User) -> None:
    await_true(lambda: status(user)["running_nodes"] == NODES, "all nodes", timeout_s=BOOT_S, every_s=2.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One durable job; its checkpoint in the cluster's bucket has the training's name."""

    user: User
    name: str
    job: str

    @classmethod
    def begin(cls, user: User, name: str, *, slow_until: datetime) -> "Training":
        """Submit the training, which does not end before that time; return it once it runs."""
        user.ssh(MASTER, f"mkdir -p code && cat > code/train.py <<'END'\n{SCRIPT}END\n")
        options = f"--sync-dst-dir work {_checkpoint(name)} --env SLOW_UNTIL:{slow_until.timestamp():.0f}"
        output = user.ssh(MASTER, f"cd code && launch --durable {options} train.py 2>&1")
        training = cls(user=user, name=name, job=output.split()[-1])
        await_true(lambda: "goes on at step 0" in training.log(), "the training", timeout_s=START_S, every_s=1.0)
        return training

    def await_restart(self) -> None:
        """Wait until a new master's attempt goes on at a saved step."""
        pattern = re.compile(r"goes on at step [1-9]")
        await_true(lambda: pattern.search(self.log()), "the next attempt", timeout_s=BOOT_S, every_s=2.0)

    def log(self) -> str:
        try:
            return self.user.ssh(MASTER, f"launch logs {self.job} 2>/dev/null || true")
        except subprocess.CalledProcessError:
            return ""

    def saved_step(self) -> int:
        """Return the step of the last checkpoint; 0 if there is none."""
        s3, bucket, key = client("s3"), stack_outputs()["ClusterBucket"], f"{self.name}.pt"
        if not s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"]:
            return 0
        return int(s3.head_object(Bucket=bucket, Key=key)["Metadata"]["step"])

    def check_end(self, *, least_attempts: int, step: int) -> None:
        """Check that an attempt went on at a step to the end, and that an undisturbed run has the same bits.

        A start that fails, as one may after the loss of the master, is tried again: hence the least number of attempts.
        """
        await_true(lambda: "weights" in self.log(), "the durable training's end", timeout_s=END_S, every_s=2.0)
        read = f"launch status --json {self.job}"
        await_true(lambda: '"end": null' not in self.user.ssh(MASTER, read), "the job's end", timeout_s=START_S)
        ended = json.loads(self.user.ssh(MASTER, read))
        assert (ended["state"], ended["exit_code"]) == ("SUCCEEDED", 0), ended
        assert ended["attempt"] >= least_attempts, ended
        log = self.log()
        assert re.findall(r"goes on at step (\d+)", log) == [str(step)]
        assert 0 < step < STEPS
        undisturbed = self.user.ssh(MASTER, f"cd work && launch {_checkpoint(f'{self.name}-undisturbed')} train.py")
        assert re.findall(r"goes on at step (\d+)", undisturbed) == ["0"]
        assert re.findall(r"weights (\w+)", log) == re.findall(r"weights (\w+)", undisturbed) != []


def _checkpoint(name: str) -> str:
    return f"--env CHECKPOINT:s3://$DEEPLEARNING_BUCKET/{name}.pt"


def now() -> datetime:
    return datetime.now(timezone.utc)
