"""Measure a training run on a cluster from outside: the speed of its steps, and the processor time of one step."""

import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from local.faults.nodes import NodeHandle

UNCOUNTED = 2
"""Steps at the beginning that do not count: memory is allocated and servers get their keys."""
STEP = re.compile(r"Epoch\[0\] Batch \[(\d+)\] Speed: ([\d.]+) samples/sec")
"""The line that a worker of the trainer prints for each step with --disp-batches 1."""


@dataclass(kw_only=True, slots=True)
class Steps:
    """Collect what the workers have printed about each step."""

    workers: int
    cpu_s: Callable[[], float]
    """Returns the processor time that the nodes have used so far, in seconds."""
    speeds: dict[int, list[float]] = field(default_factory=dict)
    """Images/s of each worker, by step."""
    cpu_s_at: dict[int, float] = field(default_factory=dict)
    """Processor time at the moment when the last worker completed a step."""

    def hear(self, line: str) -> None:
        """Read a line that a worker printed."""
        if found := STEP.search(line):
            step = int(found[1])
            of_workers = self.speeds.setdefault(step, [])
            of_workers.append(float(found[2]))
            if len(of_workers) == self.workers:
                self.cpu_s_at[step] = self.cpu_s()

    @property
    def images_per_s(self) -> float:
        """Images/s of all workers in the best step, which on a busy machine was disturbed least.

        The links limit even the best step.
        """
        return max(sum(of_workers) for step, of_workers in self.speeds.items() if step > UNCOUNTED)

    @property
    def cpu_s_per_step(self) -> float:
        """Mean processor time of all nodes for each step that counts."""
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
    """Run a command that trains for this number of steps. Raises ValueError with the end of its output if it fails."""
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
    """Return the processor time of all a node's processes since it started (cgroup v2, cpu.stat)."""
    [line] = (line for line in (node.cgroup / "cpu.stat").read_text().splitlines() if line.startswith("usage_usec "))
    return int(line.split()[1]) / 1e6
