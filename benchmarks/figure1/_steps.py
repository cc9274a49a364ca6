"""Measure a training run on a cluster from its output: the speed of its steps, and the CPU time of one step."""

import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from local.faults.node_handle import NodeHandle

UNCOUNTED = 2
"""Number of first steps to skip: memory is allocated, and servers receive their keys."""
STEP = re.compile(r"Epoch\[0\] Batch \[(\d+)\] Speed: ([\d.]+) samples/sec")
"""Matches the line that a worker prints per step with --disp-batches 1."""


@dataclass(kw_only=True, slots=True)
class StepLog:
    """The steps of a run, parsed from the workers' output."""

    workers: int
    cpu_s: Callable[[], float]
    """Function that returns the CPU time of the nodes so far, in seconds."""
    speeds: dict[int, list[float]] = field(default_factory=dict)
    """Images/s of each worker, by step."""
    cpu_s_at: dict[int, float] = field(default_factory=dict)
    """CPU time in seconds when the last worker had completed a step, by step."""

    def parse(self, line: str) -> None:
        """Add a line of a worker's output."""
        if found := STEP.search(line):
            step = int(found[1])
            of_workers = self.speeds.setdefault(step, [])
            of_workers.append(float(found[2]))
            if len(of_workers) == self.workers:
                self.cpu_s_at[step] = self.cpu_s()

    @property
    def images_per_s(self) -> float:
        """Images/s of all workers in the best step, which other load on the machine disturbed least.

        The links limit the best step, too.
        """
        return max(sum(of_workers) for step, of_workers in self.speeds.items() if step > UNCOUNTED)

    @property
    def cpu_s_per_step(self) -> float:
        """Mean CPU time of all nodes per step, in seconds, without the first steps."""
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
) -> StepLog:
    """Run a command that trains for this number of steps. Raises ValueError with the end of its output if it fails."""
    log = StepLog(workers=workers, cpu_s=lambda: sum(map(_cpu_s, nodes)))
    output = []
    with subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = threading.Timer(timeout_s, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                output.append(line)
                log.parse(line)
        finally:
            deadline.cancel()
    if process.returncode != 0 or set(log.cpu_s_at) != set(range(1, steps + 1)):
        end = "".join(output)[-2000:]
        raise ValueError(f"not all {workers} workers made {steps} steps, exit code {process.returncode}:\n{end}")
    return log


def _cpu_s(node: NodeHandle) -> float:
    """Return the CPU time of a node's processes since its start, in seconds (cgroup v2, cpu.stat)."""
    [line] = (line for line in (node.cgroup / "cpu.stat").read_text().splitlines() if line.startswith("usage_usec "))
    return int(line.split()[1]) / 1e6
