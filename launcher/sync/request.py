"""Describe the files that the user wants on every node before the job starts."""

import re
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LaunchError

TIMEOUT_S = 3600
IGNORE_FILE = ".launchignore"
"""File of exclusion patterns in the source directory (launcher.sync.ignore)."""
BUCKET_URL = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*?)/?)?", re.DOTALL)
"""Matches a bucket with an optional prefix."""


REFUSE, KEEP_RESULTS, KEEP, OVERWRITE = "refuse", "keep-results", "keep", "overwrite"
"""Policies of a node for files that were changed there.

REFUSE: answer with their names and prepare nothing. KEEP_RESULTS: likewise, but keep files that no sync sent.
KEEP: keep all of them. OVERWRITE: replace them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetch:
    """Bucket prefix that every node downloads directly."""

    source: str
    """URL such as ``s3://bucket/prefix``."""
    directory: str
    """Destination directory on every node."""
    is_sharded: bool = False
    """True if each node downloads only its share of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncRequest:
    """Files and their destinations."""

    directory: str | None = None
    """Destination on every node for the launcher's directory; the ranks start there. None: send nothing."""
    excludes: tuple[str, ...] = ()
    """Patterns to exclude, after the defaults and the source's own ``.launchignore``."""
    overwrites: bool = False
    """True to overwrite files that a job or a person changed on a node."""
    keeps_changed_files: bool = False
    """True to keep such files, as a further attempt of a durable job does."""
    fetches: tuple[Fetch, ...] = ()
    timeout_s: float = TIMEOUT_S
    """Timeout of the whole sync, in seconds."""


def destination_path(directory: str, *, home: Path) -> Path:
    """Return the directory's path on this node; a relative one is in the home directory, as with ssh and rsync."""
    try:
        return home / Path(directory).expanduser()
    except RuntimeError as error:
        raise LaunchError(f"{directory}: no such user") from error
