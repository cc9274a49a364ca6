"""How fast does a command start on many nodes, against clush, pdsh and the method of MXNet's launch.py?

``true`` on 32 nodes with a real sshd each (benchmarks/_nodes.py), all in turns, from the first node, which we
alone reach without ssh. The peers use ssh as it is installed; what we ask of it, docs/decisions/013 says.
``fanout_cold_32`` is our shortest time without an open connection over the shortest of the best peer (at most 0.5);
``fanout_warm_32`` that of a launch right after another, whose connections it takes (docs/decisions/018), over clush's
(at most 0.1). ``fanout_lost_64``: which part of the connections to 64 nodes was lost, in 100 rounds (0). Beside each
time stands the processor time a node, of the near side and of the nodes (of kept connections only the former): on one
machine that decides, and of it alone a busy machine tells the truth.
Run by ``make bench B=fanout`` or ``python -m benchmarks.fanout [--rounds N]``, as root.
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

from benchmarks import _peers
from benchmarks._nodes import LAUNCH, machine, run_inside, running_nodes
from bootstrap.contract import KEEP_VARIABLE

NODES = 32
MANY_NODES = 64
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_S = 120
KEPT_S = 60


@dataclass(kw_only=True, slots=True)
class Contestant:
    """A way to run ``true`` on all nodes, and what it took."""

    name: str
    command: Sequence[str]
    kept_s: int = 0
    """For how long our launch keeps its connections; 0 also for those who cannot."""
    seconds: list[float] = field(default_factory=list)
    near_s: float = 0.0
    """Processor time on the near side, all rounds."""
    nodes_s: float = 0.0

    @property
    def best(self) -> float:
        return min(self.seconds)

    def run(self) -> None:
        """One round. Raises CalledProcessError when a node was not reached."""
        if self.kept_s:
            self._call()
        near, nodes, start = _near_s(), _nodes_s(), time.perf_counter()
        self._call()
        self.seconds.append(time.perf_counter() - start)
        self.near_s += _near_s() - near
        self.nodes_s += _nodes_s() - nodes

    def _call(self) -> None:
        environment = {**os.environ, KEEP_VARIABLE: str(self.kept_s)}
        command = [*self.command, "true"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        # Where it is given a deadline, wait() looks every 50 ms only: a quarter of what is to be measured.
        ended = os.pidfd_open(process.pid)
        is_over = bool(select.select([ended], [], [], TIMEOUT_S)[0])
        os.close(ended)
        if not is_over:
            process.kill()
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, command)

    def __str__(self) -> str:
        share = 1000 / len(self.seconds) / NODES
        rounds = " ".join(f"{one:.2f}" for one in self.seconds)
        return (
            f"{self.name}: least {self.best:.2f} s; processor time a node: {self.near_s * share:.0f} ms here, "
            f"{self.nodes_s * share:.0f} ms there; rounds {rounds}"
        )


def main() -> int:
    """Fetch the peers, then measure in namespaces of our own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--many-rounds", type=int, default=100)
    options = parser.parse_args()
    _peers.programs(), _peers.clush("")
    return run_inside("benchmarks.fanout", lambda: measure(options.rounds, options.many_rounds))


def measure(rounds: int, many_rounds: int) -> None:
    """Print the figures."""
    with running_nodes(MANY_NODES, programs=_peers.programs()) as everybody:
        print(_peers.versions(), file=sys.stderr)
        hosts_file = everybody.with_name("workers-32")
        hosts_file.write_text("".join(everybody.read_text().splitlines(keepends=True)[:NODES]))
        figures = compare(hosts_file, rounds)
        lost = lost_connections(everybody, many_rounds)
    for figure in figures:
        print(figure)
    print(f"fanout_lost_{MANY_NODES} {lost / many_rounds / MANY_NODES:.4f} ratio")


def compare(hosts_file: Path, rounds: int) -> list[str]:
    """All contestants in turns."""
    hosts = f"deeplearning-worker[1-{NODES}]"
    cold = Contestant(name="launch, cold", command=[*LAUNCH, "-H", str(hosts_file)])
    warm = Contestant(name="launch, warm", command=cold.command, kept_s=KEPT_S)
    clush = Contestant(name="clush", command=_peers.clush(hosts))
    peers = [
        clush,
        Contestant(name="pdsh", command=_peers.pdsh(hosts)),
        Contestant(name="launch.py's method", command=_peers.launch_py(hosts_file)),
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
    """Have nothing wait while others are measured, and count what the nodes' sessions took as ended."""
    subprocess.run([*LAUNCH, "close"], check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)


def lost_connections(hosts_file: Path, rounds: int) -> int:
    """How many of the nodes' connections were lost: the launcher names each of them."""
    lost = 0
    for _ in range(rounds):
        done = subprocess.run(
            [*LAUNCH, "-H", str(hosts_file), "echo up"],
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            # Connections that are new each time.
            env={**os.environ, KEEP_VARIABLE: "0"},
            capture_output=True,
            check=False,
        )
        answered = len(set(done.stdout.splitlines()))
        lost += MANY_NODES - answered
        if done.returncode:
            sys.stderr.buffer.write(done.stderr)
    print(f"{lost} of {rounds} * {MANY_NODES} connections were lost", file=sys.stderr)
    return lost


def _near_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _nodes_s() -> float:
    """Processor time of the sessions that every sshd has seen to their end. See proc(5) for the fields."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*/stat"):
        name, _, fields = process.read_text().partition("(")[2].rpartition(")")
        parent, *_ = fields.split()[1:]
        if name == "sshd" and parent == str(os.getpid()):
            ticks += sum(int(value) for value in fields.split()[11:15])
    return ticks / TICKS


if __name__ == "__main__":
    sys.exit(main())
