"""Measure the time from the launch of a training run to its first step, and its parts.

Two nodes with a real sshd each (harness/nodes.py) run ``launch python trainer`` on the digits. Each part ends with a
line of rank 0: PyTorch is loaded and the device chosen; the ranks are connected; a step is complete.
``first_step_2`` is the shortest round in seconds; its parts are printed on stderr.
Run by ``make bench B=first_step`` or ``python -m benchmarks.launch.first_step [--rounds N]``, as root.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness.nodes import LAUNCH, REPOSITORY, machine, run_in_namespaces, running_nodes

NODES = 2
TIMEOUT_S = 300
PARTS = {
    "nodes reached, PyTorch loaded": r"host=\S+ .*device=",
    "ranks met and agree": r"global batch size",
    "first step": r"Epoch\[0\] Batch \[1\]",
}
"""Parts in order, and the line of rank 0 that ends each."""
OPTIONS = ("--kv-store", "dist_sync", "--num-epochs", "1", "--disp-batches", "1", "--resume", "never")


def main() -> int:
    """Measure in fresh namespaces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    return run_in_namespaces("benchmarks.launch.first_step", lambda: measure(options.rounds))


def measure(rounds: int) -> None:
    """Measure, and print the result."""
    with running_nodes(NODES) as hosts_file:
        # One more, because the first round loads libraries into the page cache.
        times = [first_step(hosts_file) for _ in range(rounds + 1)][1:]
        print(machine(), file=sys.stderr)
    best = min(times, key=lambda parts: parts[-1])
    begins = [0.0, *best[:-1]]
    for name, begin, end in zip(PARTS, begins, best, strict=True):
        print(f"  {name}: {end - begin:.2f} s", file=sys.stderr)
    print(f"  rounds {' '.join(f'{parts[-1]:.2f}' for parts in times)}", file=sys.stderr)
    print(f"first_step_{NODES} {best[-1]:.2f} s")


def first_step(hosts_file: Path) -> list[float]:
    """Run the trainer; return the seconds from the launch to the end of each part."""
    prefix = hosts_file.with_name("checkpoints") / "net"
    trainer = ["python", str(REPOSITORY / "trainer"), *OPTIONS, "--model-prefix", str(prefix)]
    start, ends, output = time.perf_counter(), [], []
    launch = subprocess.Popen(
        [*LAUNCH, "-H", str(hosts_file), *trainer],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert launch.stdout is not None
    waited_for = list(PARTS.values())
    for line in launch.stdout:
        output.append(line)
        if waited_for and re.search(rf"rank 0/{NODES} .*{waited_for[0]}", line):
            ends.append(time.perf_counter() - start)
            waited_for.pop(0)
    if launch.wait(TIMEOUT_S) or waited_for:
        raise SystemExit(f"the run failed: {''.join(output)[-2000:]}")
    return ends


if __name__ == "__main__":
    sys.exit(main())
