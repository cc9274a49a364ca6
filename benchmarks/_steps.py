"""Follows a training on a cluster from outside: how fast its steps are, and what its nodes' processors do for one."""

import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from local.faults.nodes import NodeHandle

UNCOUNTED = 2
"""Steps at the beginning, in which memory is taken and servers are told what there is."""
STEP = re.compile(r"Epoch\[0\] Batch \[(\d+)\] Speed: ([\d.]+) samples/sec")
"""What a worker of the trainer says of each step, with --disp-batches 1."""


@dataclass(kw_only=True, slots=True)
class Steps:
    """What the workers said of each step so far."""

    workers: int
    cpu_s: Callable[[], float]
    """Processor time that the nodes have used until now, in seconds."""
    speeds: dict[int, list[float]] = field(default_factory=dict)
    """Images/s of each worker, by step."""
    cpu_s_at: dict[int, float] = field(default_factory=dict)
    """Processor time when the last worker had done a step."""

    def hear(self, line: str) -> None:
        """Take what a worker says."""
        if found := STEP.search(line):
            step = int(found[1])
            of_workers = self.speeds.setdefault(step, [])
            of_workers.append(float(found[2]))
            if len(of_workers) == self.workers:
                self.cpu_s_at[step] = self.cpu_s()

    @property
    def images_per_s(self) -> float:
        """Of all workers, in the best step: on a busy machine the one that was disturbed least.

        No step is quicker than the links.
        """
        return max(sum(of_workers) for step, of_workers in self.speeds.items() if step > UNCOUNTED)

    @property
    def cpu_s_per_step(self) -> float:
        """What all nodes together compute for a step, mean of those that count."""
        last = max(self.cpu_s_at)
        return (self.cpu_s_at[last] - self.cpu_s_at[UNCOUNTED]) / (last - UNCOUNTED)


def follow(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    workers: int,
    steps: int,
    nodes: Sequence[NodeHandle],
    timeout_s: float,
) -> Steps:
    """Run a command that trains for so many steps. Raises ValueError when it does not, with the end of what it said."""
    heard = Steps(workers=workers, cpu_s=lambda: sum(map(_cpu_s, nodes)))
    said = []
    with subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = threading.Timer(timeout_s, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                heard.hear(line)
        finally:
            deadline.cancel()
    if process.returncode != 0 or set(heard.cpu_s_at) != set(range(1, steps + 1)):
        end = "".join(said)[-2000:]
        raise ValueError(f"not all {workers} workers made {steps} steps, exit code {process.returncode}:\n{end}")
    return heard


def _cpu_s(node: NodeHandle) -> float:
    """Processor time of all a node's processes since it began (cgroup v2, cpu.stat)."""
    [line] = (line for line in (node.cgroup / "cpu.stat").read_text().splitlines() if line.startswith("usage_usec "))
    return int(line.split()[1]) / 1e6
