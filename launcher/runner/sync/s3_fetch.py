"""Download files from a bucket with this node's role, in a process of its own (launcher.runner.s3)."""

import fcntl
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from launcher.errors import LaunchError
from launcher.paths import VENDOR
from launcher.runner.sync.destination import make_directory
from launcher.runner.sync.sync_state import RECORDS_DIR
from launcher.sync.request import BUCKET_URL

PROGRAM: Final = Path(__file__).resolve().parents[1] / "s3/__main__.py"
LOCK_POLL_S: Final = 0.2
LATE: Final = "not fetched in time (--sync-timeout); the same line continues"


def fetch(
    source: str,
    directory: Path,
    *,
    shard: Sequence[int] | None,
    timeout_s: float,
    report: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Download what `directory` lacks of everything below `source`; report counts, and return the final ones.

    With `shard`, an index and a number of nodes, download only this node's share. Raises LaunchError.
    """
    match = BUCKET_URL.fullmatch(source)
    if match is None:
        raise ValueError(f"not a bucket's prefix: {source!r}")
    until = time.monotonic() + timeout_s
    make_directory(directory)
    request = {
        "bucket": match[1],
        "prefix": f"{match[2]}/" if match[2] else "",
        "directory": str(directory),
        "shard": shard,
    }
    with _locked(directory, source=source, until=until), _running(request) as process:
        lines = _lines(process, source=source, until=until)
        while not (line := next(lines)).pop("done", False):
            if "error" in line:
                raise LaunchError(line["error"])
            report(line)
        return line


@contextmanager
def _locked(directory: Path, *, source: str, until: float) -> Iterator[None]:
    """Wait until no other launch fetches to the directory on this node."""
    name = hashlib.sha256(f"{socket.gethostname()}:s3:{directory.resolve()}".encode(errors="surrogateescape"))
    path = Path.home() / RECORDS_DIR / f"{name.hexdigest()[:32]}.lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _acquire(lock):
            if time.monotonic() > until:
                raise LaunchError(f"{source}: {LATE}; another launch fetches to {directory}")
            time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(lock)


def _acquire(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _running(request: dict[str, Any]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the download, and end it with this block."""
    # Without a release's libraries, as on a machine that is no node, take the user's Python.
    python = [sys.executable, "-I", "-S"] if Path(VENDOR).is_dir() else ["python3", "-I"]
    with subprocess.Popen(
        [*python, "-X", "utf8", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.close()
            yield process
        finally:
            process.kill()


def _lines(process: "subprocess.Popen[bytes]", *, source: str, until: float) -> Iterator[dict[str, Any]]:
    """Yield the program's lines without end; LaunchError at the deadline, or at its end, with its last other line."""
    assert process.stdout is not None
    pending, last = b"", ""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise LaunchError(f"{source}: {LATE}{last and f'; {last}'}")
        data = os.read(process.stdout.fileno(), 1 << 16)
        if not data:
            raise LaunchError(f"{source}: {last or 'the download ended without a result'}")
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if text.startswith("{"):
                yield json.loads(text)
            else:
                last = text.strip() or last
