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
    return frozenset(match["command"] for match in ROW.finditer(PAGE.read_text()))


@functools.cache
def documented_keys(command: str) -> frozenset[str]:
    """Return the keys that the rows of a command name, and those of the commands that these rows refer to."""
    keys = " ".join(match["keys"] for match in ROW.finditer(PAGE.read_text()) if match["command"] == command)
    others = {other for other in REFERENCE.findall(keys) if other != command}
    return frozenset({"version", *re.findall(r"`(\w+)`", keys)}).union(*map(documented_keys, others))


def undocumented_keys(command: str, document: Any) -> Iterator[str]:
    """Yield each key of a JSON document that the page does not name for the command."""
    if isinstance(document, list):
        for each in document:
            yield from undocumented_keys(command, each)
    elif isinstance(document, dict):
        yield from document.keys() - documented_keys(command)
        for key, value in document.items():
            if key not in KEYED_BY_DATA:
                yield from undocumented_keys(command, value)
