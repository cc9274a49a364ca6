"""Find the shared libraries of the image's PyTorch environment, and read them with many readers at once.

A fresh volume loads each block from its snapshot on first access, which takes milliseconds: import torch, which
touches its libraries page after page, then takes a minute. Many large reads at once wait for them together.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bootstrap.contract import PYTORCH_PYTHON
from bootstrap.files.paths import under_root

PATTERNS: Final = ("torch/lib/*.so*", "torch/*.so", "nvidia/*/lib/*.so*", "nvidia/*.so*", "triton/_C/*.so")
"""Patterns, below site-packages, of the libraries that every import loads first."""
MIN_LIBRARY_BYTES: Final = 1024 * 1024
"""Size in bytes of the smallest file that is worth a read."""
CHUNK: Final = 4 * 1024 * 1024
READERS: Final = 32
"""Size in bytes and number of the reads in flight, 128 MiB of memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
    """Amount that was read, and the reason if it was not everything."""

    size: int
    """Bytes read."""
    total: int
    """Bytes of all files."""
    seconds: float
    error: str = ""

    def __str__(self) -> str:
        told = f"{self.size / 1e6:.0f} of {self.total / 1e6:.0f} MB in {self.seconds:.1f} s"
        return f"{told}, then stopped: {self.error}" if self.error else told


def find_libraries(root: Path) -> list[Path]:
    """Return the regular files to read, each once."""
    environment = under_root(root, PYTORCH_PYTHON).parents[1]
    libraries: dict[Path, None] = {}
    for site_packages in sorted(environment.glob("lib/python3*/site-packages")):
        for pattern in PATTERNS:
            for file in sorted(site_packages.glob(pattern)):
                if file.is_file() and not file.is_symlink() and file.stat().st_size >= MIN_LIBRARY_BYTES:
                    libraries[file] = None
    return list(libraries)


def read_all(
    files: Sequence[Path], *, deadline_s: float, monotonic: Callable[[], float] = time.monotonic, chunk: int = CHUNK
) -> Amount:
    """Read the files into the page cache; stop at the deadline, and at the first error."""
    start = monotonic()
    chunks, total = [*_chunks(files, chunk)], sum(file.stat().st_size for file in files)
    reader = _Reader(end=start + deadline_s, limit_s=deadline_s, monotonic=monotonic)
    with ThreadPoolExecutor(READERS) as pool:
        size = sum(pool.map(reader.read, chunks))
    return Amount(size=size, total=total, seconds=monotonic() - start, error=reader.error)


@dataclass(frozen=True, slots=True)
class _Chunk:
    file: Path
    offset: int
    size: int


def _chunks(files: Sequence[Path], size: int) -> Iterator[_Chunk]:
    for file in files:
        for offset in range(0, file.stat().st_size, size):
            yield _Chunk(file, offset, size)


@dataclass(kw_only=True, slots=True)
class _Reader:
    """Reads chunks until the end of the time, or until one fails."""

    end: float
    limit_s: float
    monotonic: Callable[[], float]
    error: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)

    def read(self, chunk: _Chunk) -> int:
        """Return the bytes read; 0 after the end."""
        if self.stopped.is_set():
            return 0
        if self.monotonic() > self.end:
            return self._stop(f"{self.limit_s:.0f} s are over")
        try:
            handle = os.open(chunk.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return len(os.pread(handle, chunk.size, chunk.offset))
            finally:
                os.close(handle)
        except OSError as error:
            return self._stop(f"{chunk.file.name}: {error.strerror}")

    def _stop(self, error: str) -> int:
        self.error = self.error or error
        self.stopped.set()
        return 0
