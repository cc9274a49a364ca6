"""Use the shared directory from a job, and train in another job that does not use it."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.run.user import User
from tests.waiting import wait_until

STATE: Final = "cat /run/deeplearning/shared-state"
"""Command that prints a node's state of the shared directory."""
_SCRIPT: Final = """
import os, time
path = os.path.join(os.environ["EFS_MOUNT"], "told.txt")
assert os.environ["DEEPLEARNING_SHARED"] == os.environ["EFS_MOUNT"] == "/shared"
if os.environ["RANK"] == "0":
    with open(path + ".new", "w") as file:
        file.write("from rank 0")
    os.rename(path + ".new", path)
deadline = time.monotonic() + 120
while not os.path.exists(path):
    assert time.monotonic() < deadline, "waited 120 s for rank 0 to write"
    time.sleep(0.1)
print("rank", os.environ["RANK"], "reads", open(path).read())
"""


def check_that_ranks_share(on_master: Callable[[str], str], *, nodes: int) -> None:
    """Run the job from the shared directory; ``on_master`` returns the output of a command on the master."""
    on_master(f"cat > /shared/writes.py <<'EOF'\n{_SCRIPT}EOF")
    printed = on_master("launch python3 /shared/writes.py")
    assert sorted(line.split("rank ", 1)[1] for line in printed.splitlines() if "reads" in line) == [
        f"{rank} reads from rank 0" for rank in range(nodes)
    ]


_TRAINING: Final = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 8))
optimizer, end, step = torch.optim.SGD(model.parameters(), lr=0.05), torch.zeros(1), 0
while not end:
    optimizer.zero_grad()
    model(torch.randn(16, 32)).square().mean().backward()
    optimizer.step()
    step += 1
    end.fill_(dist.get_rank() == 0 and os.path.exists("/tmp/end-training"))
    dist.broadcast(end, src=0)
    print("step", step, flush=True)
    time.sleep(0.1)
print("trained to the end", flush=True)
"""
STEP_S: Final = 240.0
"""Limit for some steps, each of which needs every node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """A training on all nodes that touches no shared directory."""

    user: User
    master: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def steps(self) -> int:
        """Return how many steps all ranks have printed so far."""
        return self.log.read_text().count("step ")

    def wait_for_steps(self, more: int = 30) -> None:
        """Wait until it has trained for some more steps."""
        target = self.steps() + more

        def has_trained() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            return self.steps() >= target

        wait_until(has_trained, f"{more} more steps", timeout_s=STEP_S)

    def check_end(self, *, nodes: int) -> None:
        """Let it end, and check that each rank was there from the first step to the last."""
        self.user.ssh(self.master, "touch /tmp/end-training")
        assert self.process.wait(STEP_S) == 0, self.log.read_text()[-2000:]
        printed = self.log.read_text()
        assert printed.count("trained to the end") == nodes
        assert printed.count("step 1\n") == nodes


@contextmanager
def training_elsewhere(user: User, master: str, log: Path) -> Iterator[Training]:
    """Start the training, and end it."""
    user.ssh(master, f"rm -f /tmp/end-training; mkdir -p code && cat > code/train.py <<'EOF'\n{_TRAINING}EOF\n")
    command = user.ssh_command(master, "cd code && launch --sync-dst-dir work train.py")
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=dict(user.environment), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield Training(user=user, master=master, process=process, log=log)
    finally:
        process.kill()
        process.wait()
