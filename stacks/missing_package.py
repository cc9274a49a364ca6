"""Say which package this Python lacks, and how to get it; imports nothing that may be missing itself."""

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[1]
ACTIVATE: Final = ".venv/bin/activate"
"""Script that the installation instructions create in the checkout."""
COMMAND_LINE: Final = ("click", "botocore", "paramiko", "rich")
"""Packages of dlcluster, each of which only some commands import."""


def first_missing(packages: Iterable[str] = COMMAND_LINE) -> str | None:
    """Return the first package that cannot be imported; None if all are there."""
    return next((name for name in packages if find_spec(name) is None), None)


def missing_message(package: str | None, *, checkout: Path = CHECKOUT) -> str:
    """Return one line: the package that this Python lacks, and what to do."""
    if (checkout / ACTIVATE).exists():
        fix = f"activate the environment that has requirements.txt installed, as in: . {ACTIVATE}"
    else:
        make = "docs/start/install.md shows how to make an environment with requirements.txt"
        fix = f"{make} (or activate yours: . {ACTIVATE})"
    return f"{sys.executable} has no {package}: {fix}"
