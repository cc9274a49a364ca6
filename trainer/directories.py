"""Where the ranks keep their checkpoints: a node that lacks a directory runs its ranks in another one."""

import logging
import os
from pathlib import Path
from typing import Final

from trainer.engines import Engine
from trainer.gather import gather, tell
from trainer.sampling import Shard

log = logging.getLogger(__name__)

NAMED: Final = 5
"""Ranks in one line; of more it says how many."""


def directory_of(prefix: str) -> str:
    """Return a prefix's directory, from ``~`` on where it is in the home directory, which may differ between nodes."""
    directory, home = Path(prefix).expanduser().absolute().parent, os.environ.get("HOME")
    if home and directory.is_relative_to(home):
        return str("~" / directory.relative_to(home))
    return str(directory)


def is_elsewhere(engine: Engine, prefix: str | None, *, shard: Shard) -> bool:
    """Whether this rank's checkpoints are in another directory than rank 0's, which says so in one line.

    ``prefix`` is None on a rank whose machine another one writes for. All ranks call it together.
    """
    own = "" if prefix is None else directory_of(prefix)
    first = tell(engine, own, source=0, shard=shard)
    elsewhere = bool(own) and own != first
    rows = gather(engine, [elsewhere], shard=shard)
    others = [str(rank) for rank, [differs] in enumerate(rows) if differs]
    if others and not shard.index:
        named = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED} more" if len(others) > NAMED else "")
        log.warning(
            "checkpoints of rank %s are not in rank 0's directory %s, as their nodes run elsewhere; "
            "an absolute --model-prefix, or the same directory on every node (launch --sync-dst-dir), is one for all",
            named,
            first,
        )
    return elsewhere
