"""Ranks whose machines share the directory of their checkpoints leave the writing to rank 0.

Otherwise each of 64 machines would send the same file to the same file server, in place of the one before it.
"""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from trainer.engines import Engine
from trainer.files import unfinished
from trainer.gather import tell
from trainer.sampling import Shard


def is_rank_0s(engine: Engine, prefix: str | None, *, shard: Shard) -> bool:
    """Whether this rank, not rank 0 itself, keeps its checkpoints in the very directory of rank 0.

    Rank 0 leaves a file there that no other directory has, and all look for it. One that does not see it, as through a
    cache of a network file system, writes its own: that is not wrong, only more. ``prefix`` is None on a rank whose
    machine another one writes for. All ranks call it together.
    """
    with _token(prefix) if prefix and not shard.index else contextlib.nullcontext("") as own:
        name = tell(engine, own, source=0, shard=shard)
        found = prefix is not None and shard.index > 0 and _is_there(_directory(prefix) / name)
        # Not before all have looked is it removed.
        engine.sum_over_ranks([0])
    return found


@contextlib.contextmanager
def _token(prefix: str) -> Iterator[str]:
    """Have a file there while the block lasts, and give its name; where it cannot be written nobody finds it."""
    path = unfinished(_directory(prefix) / f"{Path(prefix).name}-{secrets.token_hex(8)}")
    try:
        with contextlib.suppress(OSError):
            path.touch()
        yield path.name
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _directory(prefix: str) -> Path:
    return Path(prefix).expanduser().parent


def _is_there(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.exists()
    return False
