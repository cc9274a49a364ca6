"""Measure the time until files are on all nodes, compared with parallel rsyncs to each node.

A master and eight nodes run in network namespaces, each with a sshd and 400 Mbit/s in each direction.

- ``sync_tree_8``: time of ``launch --sync-dst-dir DIR true`` with 200 MB in 200 new files, divided by the time of eight
  parallel ``rsync -a`` to the same nodes.
- ``sync_noop_8``: seconds of the same launch when nothing has changed, with its job, on the connections that the first
  one left open.

They run in turn, the shortest round counts, and the received files are compared with the sent ones.
Run by ``make bench B=sync`` or ``python -m benchmarks.launch.sync [--rounds N]``, as root.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from local.network.vpc_network import in_namespace
from local.run.sandbox import UNSHARE
from tests.launcher.sshd import client_config, make_key, sshd_nodes

LAUNCHER = Path(__file__).resolve().parents[2] / "launcher"
NODES = 8
RATE = "400mbit"
FILES, FILE_SIZE = 200, 1_000_000
SYNC = ("--sync-dst-dir", "copy")
REPEATS = 4
"""Number of unchanged syncs timed per round, each followed by a launch without a sync."""
MASTER = "master"
PORT = 22
TIMEOUT_S = 300
INSIDE = "SYNC_BENCHMARK_INSIDE"
SHAPING = f"tbf rate {RATE} burst 256kb latency 50ms"


def main() -> int:
    """Run in fresh namespaces, which end with this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    if INSIDE in os.environ:
        measure(rounds)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        inside = [*UNSHARE, sys.executable, "-m", "benchmarks.launch.sync", "--rounds", str(rounds)]
        return subprocess.run(inside, check=False, env={**os.environ, INSIDE: directory}).returncode


@dataclass(frozen=True, kw_only=True)
class Site:
    """The master's files, and each node's home directory by the node's address."""

    source: Path
    hosts: Path
    homes: dict[str, Path]
    environment: dict[str, str]

    def clear(self) -> None:
        for home in self.homes.values():
            shutil.rmtree(home)
            home.mkdir()

    def launch(self, *options: str) -> float:
        """Return the seconds of a launch."""
        return self._time([[sys.executable, str(LAUNCHER), "-H", str(self.hosts), *options, "true"]])

    def rsync(self) -> float:
        """Return the seconds of parallel rsyncs to all nodes."""
        return self._time([
            ["rsync", "-a", f"{self.source}/", f"{address}:{home}/copy/"] for address, home in self.homes.items()
        ])  # fmt: skip

    def _time(self, commands: list[list[str]]) -> float:
        start = time.perf_counter()
        running = [
            subprocess.Popen(
                ["ip", "netns", "exec", MASTER, *command], cwd=self.source, env=self.environment, stdout=sys.stderr
            )
            for command in commands
        ]
        codes = [process.wait(TIMEOUT_S) for process in running]
        if any(codes):
            raise SystemExit(f"{commands[0][:2]} failed")
        return time.perf_counter() - start

    def compare(self) -> None:
        names = [path.name for path in self.source.iterdir()]
        for home in self.homes.values():
            same, *others = filecmp.cmpfiles(self.source, home / "copy", names, shallow=False)
            if len(same) != FILES or any(others):
                raise SystemExit(f"{home} has {len(same)} of {FILES} files")


def measure(rounds: int) -> None:
    ours, unchanged, bare, rsync = [], [], [], []
    with site(Path(os.environ[INSIDE])) as here:
        for _ in range(rounds):
            here.clear()
            ours.append(here.launch(*SYNC))
            here.compare()
            for _ in range(REPEATS):
                unchanged.append(here.launch(*SYNC))
                bare.append(here.launch())
            here.clear()
            rsync.append(here.rsync())
            here.compare()
    report(ours=ours, rsync=rsync, unchanged=unchanged, bare=bare)


def report(*, ours: list[float], rsync: list[float], unchanged: list[float], bare: list[float]) -> None:
    """Print the versions and all times, then the results."""
    for program in ("rsync", "ssh"):
        version = subprocess.run([program, "-V"], capture_output=True, text=True, check=True)
        print((version.stdout or version.stderr).splitlines()[0], file=sys.stderr)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    for name, seconds in {
        "ours": ours,
        "rsync": rsync,
        "ours, unchanged files": unchanged,
        "ours without sync": bare,
    }.items():
        print(f"{name}: {', '.join(f'{value:.2f}' for value in seconds)} s; load {load}", file=sys.stderr)
    print(f"sync_tree_{NODES} {min(ours) / min(rsync):.2f} ratio")
    print(f"sync_noop_{NODES} {min(unchanged):.2f} s")


@contextmanager
def site(directory: Path) -> Iterator[Site]:
    """Start the nodes with their sshd, and make the master's files, all in memory."""
    for place in (directory, Path("/run")):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    addresses = make_network()
    homes = {address: directory / f"home-{address}" for address in addresses}
    for path in (directory / "source", directory / "bin", *homes.values()):
        path.mkdir()
    for number in range(FILES):
        (directory / "source" / f"{number}.bin").write_bytes(os.urandom(FILE_SIZE))
    (directory / "hosts").write_text("".join(f"{address}\n" for address in addresses))
    with start_nodes(directory, homes):
        (directory / "runtime").mkdir(mode=0o700)
        environment = {
            "PATH": f"{directory}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": f"{directory}/runtime",
        }
        yield Site(
            source=directory / "source",
            hosts=directory / "hosts",
            homes=homes,
            environment=environment | {"HOME": str(directory)},
        )


def make_network() -> list[str]:
    """Connect the master and the nodes to one switch; return the nodes' addresses."""
    ip(["link set lo up", "link add switch type bridge", "link set switch up"])
    for number in range(NODES + 1):
        name, link = node_name(number), f"link{number}"
        ip([
            f"netns add {name}",
            f"link add {link} type veth peer name ens5 netns {name}",
            f"link set {link} master switch up",
        ])  # fmt: skip
        ip(["link set lo up", f"addr add 10.9.0.{number + 1}/24 dev ens5", "link set ens5 up"], "-n", name)
        shape(link)
        shape("ens5", "-n", name)
    return [f"10.9.0.{number + 1}" for number in range(1, NODES + 1)]


def node_name(number: int) -> str:
    return f"node{number}" if number else MASTER


def ip(lines: list[str], *where: str) -> None:
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines), text=True, check=True)


def shape(link: str, *where: str) -> None:
    subprocess.run(["tc", *where, "qdisc", "add", "dev", link, "root", *SHAPING.split()], check=True)


@contextmanager
def start_nodes(directory: Path, homes: dict[str, Path]) -> Iterator[None]:
    """Start a sshd in each node's namespace, and make an ssh command that knows them all."""
    authorized, known = make_key(directory / "identity"), directory / "known_hosts"
    with ExitStack() as stack, known.open("w") as file:
        for number, address in enumerate(homes, start=1):
            nodes = sshd_nodes(directory, [address], authorized=authorized, port=PORT, homes=homes)
            [node] = in_namespace(node_name(number), partial(stack.enter_context, nodes))
            file.write(f"{node.address} {node.host_key}\n")
        file.flush()
        config = directory / "ssh_config"
        client_config(config, port=PORT, identity=directory / "identity", known_hosts=known)
        config.write_text(config.read_text().replace("Host 127.*", "Host *"))
        ssh = directory / "bin/ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
        ssh.chmod(0o755)
        yield


if __name__ == "__main__":
    sys.exit(main())
