"""Find out whether ranks share rank 0's checkpoint directory, or keep their checkpoints in another one.

Ranks that share it leave the writing to rank 0: otherwise each of 64 machines would send the same file to the same file
server. A node that lacks the working directory runs its ranks in another one, which rank 0 warns about.
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
from trainer.data.sampling import Shard
from trainer.distributed.all_gather import all_gather

log = logging.getLogger(__name__)

NAMED: Final = 5
"""List at most this many ranks in one line."""


class DirectoryReport(NamedTuple):
    """What each rank tells the others of its checkpoint directory."""

    differs_from_first: float
    """1 if it is not rank 0's directory, else 0."""


def checkpoint_directory(prefix: str) -> str:
    """Return a prefix's directory, written with ``~`` below the home directory, which may differ between nodes."""
    directory, home = Path(prefix).expanduser().absolute().parent, os.environ.get("HOME")
    if home and directory.is_relative_to(home):
        return str("~" / directory.relative_to(home))
    return str(directory)


def is_in_another_directory(backend: Backend, prefix: str | None, *, shard: Shard) -> bool:
    """Return whether this rank's directory differs from rank 0's, which then warns in one line.

    ``prefix`` is None on a rank whose machine another rank writes for. All ranks call it together.
    """
    own = "" if prefix is None else checkpoint_directory(prefix)
    first = backend.broadcast_object(own, source=0)
    differs = bool(own) and own != first
    reports = all_gather(backend, DirectoryReport(differs), shard=shard)
    others = [str(rank) for rank, report in enumerate(reports) if report.differs_from_first]
    if others and not shard.index:
        named = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED} more" if len(others) > NAMED else "")
        log.warning(
            "checkpoints of rank %s are not in rank 0's directory %s, as their nodes run elsewhere; "
            "an absolute --model-prefix, or the same directory on every node (launch --sync-dst-dir), is one for all",
            named,
            first,
        )
    return differs


def is_shared_with_rank_0(backend: Backend, prefix: str | None, *, shard: Shard) -> bool:
    """Return whether this rank, other than rank 0, has the very directory of rank 0.

    Rank 0 creates a file there that no other directory has, and all look for it. A rank that does not see it, as
    through a cache of a network file system, writes its own checkpoints: not wrong, only more. ``prefix`` is None on a
    rank whose machine another rank writes for. All ranks call it together.
    """
    with _probe_file(prefix) if prefix and not shard.index else contextlib.nullcontext("") as own:
        name = backend.broadcast_object(own, source=0)
        found = prefix is not None and shard.index > 0 and _exists(_directory(prefix) / name)
        # Barrier: delete the file after every rank has looked for it.
        backend.all_reduce([0])
    return found


@contextlib.contextmanager
def _probe_file(prefix: str) -> Iterator[str]:
    """Create a file while the block lasts, and yield its name; nobody finds it where it cannot be written."""
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
