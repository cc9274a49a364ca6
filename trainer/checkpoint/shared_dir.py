"""Detect which ranks share rank 0's checkpoint directory, and which use a directory with another path.

Ranks that share it leave the writing to rank 0; otherwise each of 64 machines would write the same file to one file
server. A node without the working directory runs its ranks in another one; rank 0 warns about it.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from trainer.atomic_file import temporary_path
from trainer.backend import Backend
from trainer.distributed.all_gather import all_gather
from trainer.distributed.data_parallel import DataParallelGroup

log = logging.getLogger(__name__)

MAX_LISTED: Final = 5
"""Maximum number of ranks in one line."""


class DirectoryReport(NamedTuple):
    """One rank's report on its checkpoint directory."""

    in_another_directory: bool
    """True if it is not rank 0's directory."""


def checkpoint_directory(prefix: str) -> str:
    """Return a prefix's directory, with ``~`` for the home directory, which may differ between nodes."""
    directory, home = Path(prefix).expanduser().absolute().parent, os.environ.get("HOME")
    if home and directory.is_relative_to(home):
        return str("~" / directory.relative_to(home))
    return str(directory)


def detect_another_directory(backend: Backend, prefix: str | None, *, dp: DataParallelGroup) -> bool:
    """Return True if this rank's directory differs from rank 0's; rank 0 warns in one line.

    ``prefix`` is None on a rank whose machine another rank writes for. All ranks must call it together.
    """
    directory = "" if prefix is None else checkpoint_directory(prefix)
    first = backend.broadcast_object(directory, source=0)
    in_another_directory = bool(directory) and directory != first
    reports = all_gather(backend, DirectoryReport(in_another_directory), dp=dp)
    others = [str(rank) for rank, report in enumerate(reports) if report.in_another_directory]
    if others and dp.is_first_of_group:
        listed = ", ".join(others[:MAX_LISTED])
        if len(others) > MAX_LISTED:
            listed += f" and {len(others) - MAX_LISTED} more"
        log.warning(
            "checkpoints of rank %s are not in rank 0's directory %s, because their working directory differs; "
            "use an absolute --model-prefix, or the same directory on every node (launch --sync-dst-dir)",
            listed,
            first,
        )
    return in_another_directory


def detect_shared_directory(backend: Backend, prefix: str | None, *, dp: DataParallelGroup) -> bool:
    """Return True if this rank shares rank 0's checkpoint directory; False on rank 0.

    Rank 0 creates a file with a random name there, and every other rank looks for it. A rank that misses it, because
    its network file system caches the directory, writes redundant checkpoints, which is harmless. ``prefix`` is None on
    a rank whose machine another rank writes for. All ranks must call it together.
    """
    with _probe_file(prefix) if prefix and dp.is_first_of_group else contextlib.nullcontext("") as probe:
        name = backend.broadcast_object(probe, source=0)
        shares = prefix is not None and not dp.is_first_of_group and _exists(_directory(prefix) / name)
        # Barrier: delete the file after every rank has looked for it.
        backend.all_reduce([0])
    return shares


@contextlib.contextmanager
def _probe_file(prefix: str) -> Iterator[str]:
    """Create a file while the block runs and yield its name, even if it cannot be created."""
    path = temporary_path(_directory(prefix) / f"{Path(prefix).name}-{secrets.token_hex(8)}")
    try:
        with contextlib.suppress(OSError):
            path.touch()
        yield path.name
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _directory(prefix: str) -> Path:
    return Path(prefix).expanduser().parent


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.exists()
    return False
