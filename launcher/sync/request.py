"""What the user wants on every node before the job starts."""

import re
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LaunchError

DEADLINE_S = 3600
IGNORE_FILE = ".launchignore"
"""In the directory that is sent: patterns of what is left out (launcher.sync.ignore)."""
SOURCE = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*?)/?)?", re.DOTALL)
"""Bucket, and prefix if any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetch:
    """A prefix of a bucket, which each node copies by itself."""

    source: str
    """Such as ``s3://bucket/prefix``."""
    directory: str
    """Where to, on every node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncRequest:
    """Where files come from and where they go."""

    directory: str | None = None
    """Of every node, for what is in the launcher's directory; the ranks start in it. None: nothing is sent."""
    excludes: tuple[str, ...] = ()
    """Patterns of what is left out, after the defaults and those of the source's own ``.launchignore``."""
    fetches: tuple[Fetch, ...] = ()
    deadline_s: float = DEADLINE_S
    """For all of it together."""


def place(directory: str, *, home: Path) -> Path:
    """The directory that is meant on this node: as with ssh and rsync, a relative one is in the home directory."""
    try:
        return home / Path(directory).expanduser()
    except RuntimeError as error:
        raise LaunchError(f"{directory}: no such user") from error
