"""Run two workers for benchmarks of the trainer, each on its own node and CPU core.

A node is a network namespace, connected to a bridge by a veth pair, as in the local AWS. All traffic between the
workers uses TCP over the bridge; they share neither memory nor a loopback interface.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from benchmarks.harness.nodes import machine, run_in_namespaces
from benchmarks.harness.work import WORK, Work

REPOSITORY = Path(__file__).resolve().parents[2]
INTERFACE = "eth0"
BRIDGE = "nodes"
PORT = 29500
ROUND_TIMEOUT_S = 300
SPEED = re.compile(r"Speed: ([\d.]+) samples/sec")
"""Matches the line that a worker prints per window of steps; our trainer prints the format of MXNet's Speedometer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A network namespace, and the CPU core of its worker."""

    rank: int

    @property
    def address(self) -> str:
        return f"10.9.0.{self.rank + 1}"

    @property
    def core(self) -> int:
        return sorted(os.sched_getaffinity(0))[self.rank]

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs these words on the node."""
        return ["ip", "netns", "exec", self.name, "taskset", "--cpu-list", str(self.core), *words]

    @property
    def name(self) -> str:
        return f"node{self.rank}"


NODES = (Node(rank=0), Node(rank=1))
Environment = Callable[[Node], Mapping[str, str]]


def independent_ranks(node: Node) -> Mapping[str, str]:
    """Return no variables: the workers train independently of each other."""
    return {}


def no_processes(node: Node) -> Sequence[Mapping[str, str]]:
    """Return no extra processes."""
    return ()


def ranks(node: Node) -> Mapping[str, str]:
    """Return the variables that torchrun sets for two ranks."""
    return {
        "RANK": str(node.rank),
        "WORLD_SIZE": str(len(NODES)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": NODES[0].address,
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": INTERFACE,
    }


@dataclass(kw_only=True, slots=True)
class Contestant:
    """A command that two workers run, with their measured speeds: images/s of both together, one value per round."""

    name: str
    command: Sequence[str]
    work: Work
    environment: Environment = ranks
    extra_processes: Callable[[Node], Sequence[Mapping[str, str]]] = no_processes
    """Function that returns the environments of a node's extra processes, which do not train: MXNet's servers."""
    speeds: list[float] = field(default_factory=list)
    epoch_speeds: list[float] = field(default_factory=list)
    """Speeds over whole epochs, including the work between epochs. Empty for a single epoch."""

    @property
    def best(self) -> float:
        return max(self.speeds)

    @property
    def best_epoch_speed(self) -> float:
        return max(self.epoch_speeds)

    def run(self) -> None:
        """Run one round; record each worker's fastest window, which other load on the machine disturbed least."""
        with TemporaryDirectory() as directory:
            outputs = run_on_both(self, Path(directory))
        windows = [[float(speed) for line in lines for speed in SPEED.findall(line.text)] for lines in outputs]
        if min(map(len, windows)) < self.work.windows:
            raise SystemExit(
                f"{self.name} did not train to the end: {[[line.text for line in lines[-20:]] for lines in outputs]}"
            )
        self.speeds.append(sum(map(max, windows)))
        if self.work.epochs > 1:
            self.epoch_speeds.append(sum(epoch_speed(lines, self.work) for lines in outputs))
        print(f"  {self.name}: {self.speeds[-1]:.1f} images/s", file=sys.stderr)

    def __str__(self) -> str:
        rounds = " ".join(f"{speed:.1f}" for speed in self.speeds)
        epochs = f"; over whole epochs {self.best_epoch_speed:.1f}" if self.epoch_speeds else ""
        return f"{self.name}: best {self.best:.1f} images/s; rounds {rounds}{epochs}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of a worker's output, with its time in seconds of the monotonic clock."""

    seconds: float
    text: str


def epoch_speed(lines: Sequence[Line], work: Work) -> float:
    """Return a worker's images/s between the last steps of its first and its last epoch."""
    times = [line.seconds for line in lines if SPEED.search(line.text)]
    windows = work.windows // work.epochs
    return (work.epochs - 1) * work.steps * work.batch_size / (times[work.epochs * windows - 1] - times[windows - 1])


def run_on_both(contestant: Contestant, directory: Path) -> list[list[Line]]:
    """Run the workers and their extra processes to the end; return each worker's output."""
    workers, others, readers = [], [], []
    outputs: list[list[Line]] = [[] for _ in NODES]
    try:
        for node, lines in zip(NODES, outputs, strict=True):
            node_directory = directory / node.name
            node_directory.mkdir()
            others += [
                _start(contestant, node, node_directory, extra, stdout=subprocess.DEVNULL)
                for extra in contestant.extra_processes(node)
            ]
            workers.append(
                _start(contestant, node, node_directory, contestant.environment(node), stdout=subprocess.PIPE)
            )
            readers.append(Thread(target=_read_output, args=(workers[-1], lines)))
            readers[-1].start()
        for worker in workers:
            worker.wait(ROUND_TIMEOUT_S)
    finally:
        for process in (*workers, *others):
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
    return outputs


def _read_output(worker: subprocess.Popen[str], lines: list[Line]) -> None:
    assert worker.stdout is not None
    lines.extend(Line(seconds=time.monotonic(), text=text) for text in worker.stdout)


def _start(
    contestant: Contestant, node: Node, directory: Path, variables: Mapping[str, str], *, stdout: int
) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "PYTHONPATH": str(REPOSITORY),
        # As torchrun does: one thread per worker, in every library.
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return subprocess.Popen(
        node.command(*contestant.command),
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def trainer_command(network: str, *, store: str, workers: int, more: Sequence[str] = ()) -> list[str]:
    """Return our trainer's command line for this number of workers."""
    work = WORK[network]
    return [
        *(sys.executable, "-m", "trainer", "--network", network, "--kv-store", store, "--lr", "0.01"),
        *("--benchmark", "1", "--num-examples", str(work.batch_size * work.steps * workers)),
        *("--batch-size", str(work.batch_size), "--num-epochs", str(work.epochs)),
        *("--disp-batches", str(work.window), *more),
    ]


def run_rounds(
    module: str,
    description: str | None,
    measure: Callable[[int, list[str]], list[str]],
    *,
    fetch: Callable[[], object] = lambda: None,
) -> int:
    """Parse the options, create the nodes in fresh namespaces, measure there and print the results.

    Call ``fetch`` first, because the namespaces cannot reach the internet.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--network", choices=WORK, action="append")
    options = parser.parse_args()
    fetch()

    def inside() -> None:
        with nodes():
            print(machine(), file=sys.stderr)
            results = measure(options.rounds, options.network or list(WORK))
            print(machine(), file=sys.stderr)
        print("\n".join(results))

    return run_in_namespaces(module, inside)


def compare(contestants: Sequence[Contestant], *, rounds: int) -> None:
    """Run the contestants in turn, so that other load on the machine affects all of them."""
    for _ in range(rounds):
        for contestant in contestants:
            contestant.run()
    for contestant in contestants:
        print(contestant, file=sys.stderr)


@contextmanager
def nodes() -> Iterator[None]:
    """Create the two nodes; call it in fresh namespaces (benchmarks.harness.nodes.run_in_namespaces)."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True, timeout=30)
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("link", "set", BRIDGE, "up")
    for node in NODES:
        _ip("netns", "add", node.name)
        _ip("link", "add", node.name, "type", "veth", "peer", "name", INTERFACE, "netns", node.name)
        _ip("link", "set", node.name, "master", BRIDGE, "up")
        for device in ("lo", INTERFACE):
            _ip("-n", node.name, "link", "set", device, "up")
        _ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", INTERFACE)
    yield


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30)
