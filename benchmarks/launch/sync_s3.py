"""Measure the time until a prefix of a bucket is on a node, compared with ``aws s3 sync``.

Both fetch from a stand-in for S3 on this machine (_s3_stand_in.py), which answers each request after 20 ms. The peer is
the AWS CLI that requirements-dev.txt pins: as it comes, with the tuning of its page "AWS CLI S3 Configuration", and
with more requests than that at once; the fastest of the three counts. The AWS CLI 2 is not on PyPI: name one with --aws
to compare with that. Its CRT client, which asks the stand-in for TLS, is not compared.

- ``sync_s3_small``: the peer's time for 4,000 files of 20 kB, divided by that of ``launch --sync-s3 SOURCE DIR true``.
- ``sync_s3_large``: likewise for 8 files of 256 MB.
- ``sync_s3_unchanged``: likewise for the small files when nothing has changed.

All run in turn, with an empty destination except for the last, the shortest round counts, and the files are compared.
The stand-in's own limit is measured with bare sockets, and its share of a core in each round is printed.
Run by ``make bench B=sync_s3`` or ``python -m benchmarks.launch.sync_s3 [--rounds N] [--aws PROGRAM]
[--directory DIR]``; with a directory on a disk, large files also wait for the disk, which ``aws s3 sync`` never does.
"""

import argparse
import filecmp
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from benchmarks.launch._s3_stand_in import BUCKET

LAUNCHER = Path(__file__).resolve().parents[2] / "launcher"
REPOSITORY = LAUNCHER.parent
SMALL, LARGE = "small", "large"
SMALL_FILES, SMALL_SIZE = 4000, 20_000
LARGE_FILES, LARGE_SIZE = 8, 256_000_000
MEMORY = Path("/dev/shm")  # noqa: S108  (file system in memory)
PEERS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "documented tuning": {"max_concurrent_requests": "20", "max_queue_size": "10000", "multipart_threshold": "64MB",
                          "multipart_chunksize": "16MB"},
    "documented tuning, 64 requests": {"max_concurrent_requests": "64", "max_queue_size": "10000",
                                       "multipart_threshold": "64MB", "multipart_chunksize": "16MB"},
}  # fmt: skip
"""Settings of the peer below ``s3`` of its configuration file."""
PROBES = 64
"""Connections that measure the stand-in's limit."""
PROBE_REQUESTS = {SMALL: 8000, LARGE: 256}
PROBE_RANGE = 16 << 20
TIMEOUT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--aws", default="aws", help="the peer (default: the environment's)")
    parser.add_argument("--directory", help="where to put objects and copies (default: in memory)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory or (MEMORY if MEMORY.is_dir() else None)) as name:
        directory = Path(name)
        make_objects(directory / "objects")
        with stand_in(directory / "objects", aws=options.aws) as bench:
            for data in (SMALL, LARGE):
                bench.print_limit(data)
            for _ in range(options.rounds):
                for data in (SMALL, LARGE):
                    bench.run_round(data)
            bench.report()
    return 0


def make_objects(directory: Path) -> None:
    """Write both datasets; the large files are one on the disk, to leave memory for the copies."""
    for number in range(SMALL_FILES):
        path = directory / SMALL / f"{number % 40:02d}" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_SIZE))
    first = directory / LARGE / "0.rec"
    first.parent.mkdir()
    with first.open("wb") as file:
        for _ in range(LARGE_SIZE // 1_000_000):
            file.write(os.urandom(1_000_000))
    for number in range(1, LARGE_FILES):
        (first.parent / f"{number}.rec").hardlink_to(first)


@dataclass(kw_only=True)
class Bench:
    """The stand-in, the environment of both programs, and their times."""

    objects: Path
    port: int
    server: int
    """Process id of the stand-in."""
    aws: str
    """Program of the peer."""
    version: str
    environment: dict[str, str]
    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Seconds of each round by figure and program; ours is ``launch``."""

    @property
    def copy(self) -> Path:
        return self.objects.with_name("copy")

    def run_round(self, data: str) -> None:
        """Fetch with each program into an empty directory, then, for small files, fetch what has not changed."""
        for program in ("launch", *PEERS):
            shutil.rmtree(self.copy, ignore_errors=True)
            self._time(data, data, program)
            self._compare(data)
            if data == SMALL:
                self._time("unchanged", data, program)
        shutil.rmtree(self.copy)

    def _time(self, figure: str, data: str, program: str) -> None:
        source, copy = f"s3://{BUCKET}/{data}", str(self.copy)
        command = [self.aws, "s3", "sync", source, copy, "--only-show-errors", "--exact-timestamps"]
        if program == "launch":
            hosts = str(self.objects.with_name("hosts"))
            command = [sys.executable, str(LAUNCHER), "-H", hosts, "--sync-s3", source, copy, "true"]
        config = {} if program == "launch" else {"AWS_CONFIG_FILE": str(self._config(program))}
        used, started = cpu_s(self.server), time.perf_counter()
        subprocess.run(command, check=True, env=self.environment | config, stdout=sys.stderr, timeout=TIMEOUT_S)
        seconds = time.perf_counter() - started
        share = (cpu_s(self.server) - used) / seconds
        self.times.setdefault((figure, program), []).append(seconds)
        print(f"{figure}, {program}: {seconds:.2f} s, stand-in at {share:.0%} of a core", file=sys.stderr)

    def _config(self, program: str) -> Path:
        path = self.objects.with_name(f"config-{[*PEERS].index(program)}")
        lines = [f"  {name} = {value}\n" for name, value in PEERS[program].items()]
        path.write_text(aws_config(self.port, "".join(["s3 =\n", *lines] if lines else [])))
        return path

    def _compare(self, data: str) -> None:
        source = self.objects / data
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        same, *others = filecmp.cmpfiles(source, self.copy, names, shallow=False)
        count = sum(path.is_file() for path in self.copy.rglob("*"))
        if len(same) != len(names) or count != len(names) or any(others):
            raise SystemExit(f"{self.copy} has {count} files, {len(same)} of {len(names)} as they should be")

    def print_limit(self, data: str) -> None:
        """Print how fast the stand-in serves bare sockets."""
        key = sorted(path for path in (self.objects / data).rglob("*") if path.is_file())[0]
        fields = f"\r\nRange: bytes=0-{PROBE_RANGE - 1}" if data == LARGE else ""
        request = f"GET /{BUCKET}/{key.relative_to(self.objects)} HTTP/1.1\r\nHost: bench{fields}\r\n\r\n".encode()
        used, started, count = cpu_s(self.server), time.perf_counter(), PROBE_REQUESTS[data] // PROBES
        threads = [Thread(target=probe, args=(self.port, request, count)) for _ in range(PROBES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        size = PROBE_RANGE if data == LARGE else SMALL_SIZE
        share, rate = (cpu_s(self.server) - used) / seconds, count * PROBES / seconds
        rates = f"{rate:.0f} requests/s, {rate * size / 1e6:.0f} MB/s"
        print(f"limit of the stand-in, {data}: {rates}, at {share:.0%} of a core", file=sys.stderr)

    def report(self) -> None:
        """Print all times, then the results."""
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{self.version}; load {load}", file=sys.stderr)
        for (figure, program), seconds in self.times.items():
            print(f"{figure}, {program}: {', '.join(f'{value:.2f}' for value in seconds)} s", file=sys.stderr)
        for figure in (SMALL, LARGE, "unchanged"):
            peer = min(min(self.times[figure, program]) for program in PEERS)
            print(f"sync_s3_{figure} {peer / min(self.times[figure, 'launch']):.2f} ratio")


def aws_config(port: int, settings: str = "") -> str:
    """Return a configuration file with the stand-in's address; launch takes nothing of it from variables."""
    service = f"[services bench]\ns3 =\n  endpoint_url = http://127.0.0.1:{port}\n"
    return f"[default]\nregion = us-east-1\nservices = bench\n{settings}{service}"


def probe(port: int, request: bytes, count: int) -> None:
    """Make requests over one connection, and drop their bodies."""
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        for _ in range(count):
            connection.sendall(request)
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            fields, _, body = head.partition(b"\r\n\r\n")
            left = int(fields.partition(b"Content-Length: ")[2].split(b"\r\n")[0]) - len(body)
            while left:
                left -= connection.recv_into(buffer, min(left, len(buffer)))


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds; see proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def stand_in(objects: Path, *, aws: str) -> Iterator[Bench]:
    """Start the stand-in, and make the environment in which both programs find it."""
    version = subprocess.run([aws, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    home = objects.with_name("home")
    (home / "runtime").mkdir(parents=True, mode=0o700)
    objects.with_name("hosts").write_text("127.0.0.1\n")
    command = [sys.executable, "-m", "benchmarks.launch._s3_stand_in", str(objects)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            (home / ".aws").mkdir()
            (home / ".aws/config").write_text(aws_config(port))
            (home / ".aws/credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
            yield Bench(
                objects=objects,
                port=port,
                server=server.pid,
                aws=aws,
                version=version,
                environment={
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "HOME": str(home),
                    "XDG_RUNTIME_DIR": str(home / "runtime"),
                },
            )
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
