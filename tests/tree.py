"""List files of the checkout for tests, while other programs write and remove bytecode there.

Path.rglob fails in Python 3.11 when a directory disappears between its listing and its turn.
"""

import os
from fnmatch import fnmatch
from pathlib import Path

BYTECODE = "__pycache__"


def files_below(directory: Path, pattern: str = "*") -> list[Path]:
    """Return the files below a directory whose names match, sorted, without bytecode."""
    found: list[Path] = []
    for parent, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if name != BYTECODE]
        found.extend(Path(parent, name) for name in names if fnmatch(name, pattern))
    return sorted(found)


def bytecode_below(directory: Path) -> list[Path]:
    """Return the directories with bytecode below a directory."""
    return [Path(parent, BYTECODE) for parent, folders, _ in os.walk(directory) if BYTECODE in folders]
