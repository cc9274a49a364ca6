"""Compare the JSON objects that commands print with docs/dlcluster-json.md."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "dlcluster-json.md"
ROW: Final = re.compile(r"^\| `(?P<command>[\w-]+)[^`]*` \| (?P<keys>.*) \|$", re.MULTILINE)
REFERENCE: Final = re.compile(r"(?:as in|that of) `([\w-]+)`")
KEYED_BY_DATA: Final = frozenset({"forecast", "pairs_gb_per_s"})
"""Keys of objects whose own keys are data: hours and names of nodes."""


@functools.cache
def documented_commands() -> frozenset[str]:
    """Return the commands that the page has a row for."""
    return frozenset(command for command, _ in _rows())


@functools.cache
def documented_keys(command: str) -> frozenset[str]:
    """Return the keys that a command's rows and section name, and those of the commands that they refer to."""
    keys = " ".join([*(keys for name, keys in _rows() if name == command), _section(command)])
    others = {other for other in REFERENCE.findall(keys) if other != command}
    return frozenset({"version", *re.findall(r"`(\w+)`", keys)}).union(*map(documented_keys, others))


def _rows() -> Iterator[tuple[str, str]]:
    """Yield the command and the text of each row of the page's table of commands, which precedes the sections."""
    for match in ROW.finditer(PAGE.read_text().partition("\n## ")[0]):
        yield match["command"], match["keys"]


def _section(command: str) -> str:
    """Return the text of a command's own section; empty without one."""
    return PAGE.read_text().partition(f"\n## `{command}`\n")[2].partition("\n## ")[0]


def undocumented_keys(command: str, document: Any) -> Iterator[str]:
    """Yield each key of a JSON document that the page does not name for the command."""
    if isinstance(document, list):
        for item in document:
            yield from undocumented_keys(command, item)
    elif isinstance(document, dict):
        yield from document.keys() - documented_keys(command)
        for key, value in document.items():
            if key not in KEYED_BY_DATA:
                yield from undocumented_keys(command, value)
