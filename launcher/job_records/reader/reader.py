"""Print a job's logs, rotated parts first; with ``-f``, continue until the job has ended on this node.

Stop when standard input closes, which means that the reader has left.
"""

import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.job_directories import is_running
from launcher.paths import JOBS_DIR

POLL_S = 0.2
CHUNK = 1 << 16


class Log:
    """One log, read from its beginning."""

    def __init__(self, path: Path, *, prefix: bytes) -> None:
        self._path = path
        self._prefix = prefix
        self._pending = b""
        self._fd: int | None = None
        self.exists = False

    def print_new(self) -> None:
        """Write the lines since the last call."""
        if self._fd is None:
            self._fd = self._open_first()
        while self._fd is not None:
            # Check before reading, so that everything written before the check is read.
            rotated = self._is_rotated(self._fd)
            while data := os.read(self._fd, CHUNK):
                self._write(data)
            if not rotated:
                return
            os.close(self._fd)
            self._fd = self._open(self._path)

    def finish(self) -> None:
        """Write an unfinished last line."""
        if self._pending:
            self._write(b"\n")

    def _open_first(self) -> int | None:
        fd = self._open(self._path.with_name(f"{self._path.name}.1"))
        return self._open(self._path) if fd is None else fd

    def _open(self, path: Path) -> int | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        self.exists = True
        return fd

    def _is_rotated(self, fd: int) -> bool:
        """Return True if the log was rotated, so that nothing more is written to the open file."""
        try:
            current = self._path.stat()
        except FileNotFoundError:
            return False
        opened = os.fstat(fd)
        return (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino)

    def _write(self, data: bytes) -> None:
        if not self._prefix:
            _write_all(data)
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        _write_all(b"".join(self._prefix + line + b"\n" for line in lines))


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def main(arguments: Sequence[str]) -> int:
    """Print the logs; return 1 if this node lacks one of them."""
    follow = arguments[0] == "-f"
    job_id, *names = arguments[follow:]
    directory = Path.home() / JOBS_DIR / job_id
    many = len(names) > 1
    logs = [Log(directory / name, prefix=f"[{name.removesuffix('.log')}] ".encode() if many else b"") for name in names]
    try:
        print_logs(logs, directory, follow=follow)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    missing = [name for name, log in zip(names, logs, strict=True) if not log.exists]
    if missing:
        print(f"launch: {directory}/{missing[0]} does not exist, or no longer", file=sys.stderr)
    return 1 if missing else 0


def print_logs(logs: Sequence[Log], directory: Path, *, follow: bool) -> None:
    """Print the logs' current contents."""
    running = True
    while running:
        # Check before reading, so that everything written before the check is read.
        running = follow and directory.is_dir() and is_running(directory) and not _reader_gone()
        for log in logs:
            log.print_new()
    for log in logs:
        log.finish()


def _reader_gone() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(readable)
