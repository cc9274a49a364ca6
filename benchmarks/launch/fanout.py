"""Measure how fast a command starts on many nodes, compared with clush, pdsh and the method of MXNet's launch.py.

All contestants in turn start ``true`` on 32 nodes with a real sshd each (harness/nodes.py). They run on the first node:
launch starts its process there directly, the peers use ssh for that node too. The peers use ssh's default options;
docs/decisions/013 lists ours.

- ``fanout_cold_32``: our shortest time without an open connection, divided by the best peer's.
- ``fanout_warm_32``: our shortest time right after another launch, with its open connections (docs/decisions/018),
  divided by clush's.
- ``fanout_lost_64``: share of lost connections to 64 nodes in 100 rounds.

The CPU time per node is printed too, here and on the nodes (for open connections only here). On a single machine it
determines the time, and is the only reliable value on a busy machine.
Run by ``make bench B=fanout`` or ``python -m benchmarks.launch.fanout [--rounds N]``, as root.
"""

import argparse
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.nodes import LAUNCH, machine, run_in_namespaces, running_nodes
from benchmarks.launch import _peers
from bootstrap.contract import CONNECTION_IDLE_VARIABLE

NODES = 32
MANY_NODES = 64
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_S = 120
KEPT_S = 60


@dataclass(kw_only=True, slots=True)
class FanoutCommand:
    """A command that runs ``true`` on all nodes, with its times."""

    name: str
    command: Sequence[str]
    kept_s: int = 0
    """Seconds for which launch keeps its connections open; 0 for the peers, which cannot."""
    seconds: list[float] = field(default_factory=list)
    local_cpu_s: float = 0.0
    """CPU time of the command on this side in all rounds, in seconds."""
    node_cpu_s: float = 0.0
    """CPU time of the nodes' sessions in all rounds, in seconds."""

    @property
    def best(self) -> float:
        return min(self.seconds)

    def run(self) -> None:
        """Run one round. Raises CalledProcessError if a node was not reached."""
        if self.kept_s:
            self._call()
        local, nodes, start = _local_cpu_s(), _node_cpu_s(), time.perf_counter()
        self._call()
        self.seconds.append(time.perf_counter() - start)
        self.local_cpu_s += _local_cpu_s() - local
        self.node_cpu_s += _node_cpu_s() - nodes

    def _call(self) -> None:
        environment = {**os.environ, CONNECTION_IDLE_VARIABLE: str(self.kept_s)}
        command = [*self.command, "true"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        # wait() with a timeout polls every 50 ms, a quarter of the measured time.
        ended = os.pidfd_open(process.pid)
        is_over = bool(select.select([ended], [], [], TIMEOUT_S)[0])
        os.close(ended)
        if not is_over:
            process.kill()
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, command)

    def __str__(self) -> str:
        share = 1000 / len(self.seconds) / NODES
        rounds = " ".join(f"{seconds:.2f}" for seconds in self.seconds)
        return (
            f"{self.name}: best {self.best:.2f} s; processor time per node: {self.local_cpu_s * share:.0f} ms here, "
            f"{self.node_cpu_s * share:.0f} ms there; rounds {rounds}"
        )


def main() -> int:
    """Download the peers, then measure in fresh namespaces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--many-rounds", type=int, default=100)
    options = parser.parse_args()
    _peers.fetch_all()
    return run_in_namespaces("benchmarks.launch.fanout", lambda: measure(options.rounds, options.many_rounds))


def measure(rounds: int, many_rounds: int) -> None:
    """Measure, and print the results."""
    with running_nodes(MANY_NODES, programs=_peers.pdsh_tree()) as everybody:
        print(_peers.versions(), file=sys.stderr)
        hosts_file = everybody.with_name("workers-32")
        hosts_file.write_text("".join(everybody.read_text().splitlines(keepends=True)[:NODES]))
        figures = compare(hosts_file, rounds)
        lost = lost_connections(everybody, many_rounds)
    for figure in figures:
        print(figure)
    print(f"fanout_lost_{MANY_NODES} {lost / many_rounds / MANY_NODES:.4f} ratio")


def compare(hosts_file: Path, rounds: int) -> list[str]:
    """Run all contestants in turn; return the result lines."""
    hosts = f"deeplearning-worker[1-{NODES}]"
    cold = FanoutCommand(name="launch, cold", command=[*LAUNCH, "-H", str(hosts_file)])
    warm = FanoutCommand(name="launch, warm", command=cold.command, kept_s=KEPT_S)
    clush = FanoutCommand(name="clush", command=_peers.clush(hosts))
    peers = [
        clush,
        FanoutCommand(name="pdsh", command=_peers.pdsh(hosts)),
        FanoutCommand(name="launch.py's method", command=_peers.launch_py(hosts_file)),
    ]
    print(machine(), file=sys.stderr)
    for _ in range(rounds):
        for contestant in (cold, warm, *peers):
            contestant.run()
        close_kept()
    for contestant in (cold, warm, *peers):
        print(contestant, file=sys.stderr)
    print(machine(), file=sys.stderr)
    return [
        f"fanout_cold_{NODES} {cold.best / min(peer.best for peer in peers):.2f} ratio",
        f"fanout_warm_{NODES} {warm.best / clush.best:.2f} ratio",
    ]


def close_kept() -> None:
    """Close the kept connections, so that none disturbs other contestants and the nodes' sessions end."""
    subprocess.run([*LAUNCH, "close"], check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)


def lost_connections(hosts_file: Path, rounds: int) -> int:
    """Count the lost connections; the launcher names each of them."""
    lost = 0
    for _ in range(rounds):
        done = subprocess.run(
            [*LAUNCH, "-H", str(hosts_file), "echo up"],
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            # New connections each time.
            env={**os.environ, CONNECTION_IDLE_VARIABLE: "0"},
            capture_output=True,
            check=False,
        )
        answered = len(set(done.stdout.splitlines()))
        lost += MANY_NODES - answered
        if done.returncode:
            sys.stderr.buffer.write(done.stderr)
    print(f"{lost} of {rounds} * {MANY_NODES} connections were lost", file=sys.stderr)
    return lost


def _local_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _node_cpu_s() -> float:
    """Return the CPU time of the ended sessions of all sshd processes. See proc(5) for the fields."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*/stat"):
        name, _, fields = process.read_text().partition("(")[2].rpartition(")")
        parent, *_ = fields.split()[1:]
        if name == "sshd" and parent == str(os.getpid()):
            ticks += sum(int(value) for value in fields.split()[11:15])
    return ticks / TICKS


if __name__ == "__main__":
    sys.exit(main())
