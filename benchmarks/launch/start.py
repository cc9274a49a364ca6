"""Measure the time until two nodes compute together, compared with ssh and torchrun by hand.

The time runs from the command to the end of the first all-reduce (PyTorch, gloo) of two nodes with a real sshd each
(harness/nodes.py). By hand means a parallel ssh to each node, which starts torchrun. Both run in turn;
``start_2`` is our shortest time divided by the peer's. Run by ``make bench B=start`` or
``python -m benchmarks.launch.start [--rounds N]``, as root.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness.nodes import LAUNCH, machine, run_in_namespaces, running_nodes
from bootstrap.contract import worker_host

NODES = 2
MASTER_PORT = 29500
TIMEOUT_S = 300
SCRIPT = """
import os
import time
began = time.time()
import torch
import torch.distributed as dist
imported = time.time()
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
# In one write: under torchrun the ranks share a pipe.
os.write(1, f"reduced {began} {imported} {total.item()} {time.time()}\\n".encode())
dist.destroy_process_group()
"""


def main() -> int:
    """Measure in fresh namespaces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    return run_in_namespaces("benchmarks.launch.start", lambda: measure(options.rounds))


def measure(rounds: int) -> None:
    """Measure, and print the figure."""
    with running_nodes(NODES) as hosts_file:
        script = hosts_file.with_name("first.py")
        script.write_text(SCRIPT)
        commands = {
            "launch": [*LAUNCH, "-H", str(hosts_file), "python", str(script)],
            "by hand": ["bash", "-c", by_hand(script)],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for command in commands.values():
            first_all_reduce(command)
        print(machine(), file=sys.stderr)
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(first_all_reduce(command))
        print(machine(), file=sys.stderr)
    for name, seconds in times.items():
        print(
            f"{name}: best {min(seconds):.2f} s; rounds {' '.join(f'{time_s:.2f}' for time_s in seconds)}",
            file=sys.stderr,
        )
    print(f"start_{NODES} {min(times['launch']) / min(times['by hand']):.2f} ratio")


def by_hand(script: Path) -> str:
    """Return the lines of bash that a user would write."""
    torchrun = (
        f"torchrun --nnodes {NODES} --nproc-per-node 1 --master-addr {worker_host(1)} --master-port {MASTER_PORT}"
    )
    lines = [
        f"ssh {worker_host(rank + 1)} GLOO_SOCKET_IFNAME=lo {torchrun} --node-rank {rank} {script} &"
        for rank in range(NODES)
    ]
    return "\n".join([*lines, "wait"])


def first_all_reduce(command: list[str]) -> float:
    """Run the command; return the seconds until the last node had its sum."""
    start = time.time()
    done = subprocess.run(command, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    reduced_lines = [line.split() for line in done.stdout.decode().splitlines() if "reduced" in line]
    if [words[-2] for words in reduced_lines] != [f"{NODES}.0"] * NODES:
        raise SystemExit(f"the nodes' sums are wrong: {reduced_lines} {done.stderr.decode()[-2000:]}")
    began, imported, _, reduced = (
        max(float(words[column]) - start for words in reduced_lines) for column in (-4, -3, -2, -1)
    )
    print(f"  script began {began:.2f} s, torch imported {imported:.2f} s, reduced {reduced:.2f} s", file=sys.stderr)
    return reduced


if __name__ == "__main__":
    sys.exit(main())
