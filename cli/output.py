"""Print results for people and for programs: tables on a terminal, aligned lines in a pipe, JSON on request."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])
JSON_VERSION: Final = 1
"""Version of each JSON object that a verb prints. Keys may be added under the same version (docs/dlcluster-json.md)."""
STYLES: Final = {
    **dict.fromkeys(("running", "RUNNING", "SUCCEEDED", "ok"), "green"),
    **dict.fromkeys(("pending", "PENDING", "CANCELLED", "warning"), "yellow"),
    **dict.fromkeys(("gone", "stopped", "terminated", "FAILED", "problem"), "red"),
}
"""Colours of states on a terminal."""


def json_option(function: Function) -> Function:
    """Add ``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/dlcluster-json.md).")(
        function
    )


def print_json(**document: Any) -> None:
    """Print one JSON object with its version."""
    print(json.dumps({"version": JSON_VERSION, **document}, indent=2))


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; an empty cell is a hyphen."""
    filled = [[printable(cell) or "-" for cell in row] for row in rows]
    if is_terminal():
        _print_rich(columns, filled)
    else:
        print(aligned([columns, *filled]), end="")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def printable(text: str, *, keep: str = "") -> str:
    """Replace each control character except those in `keep`: a node may write anything, and a terminal would obey."""
    return "".join(char if char.isprintable() or char in keep else " " for char in text)


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # Import only for a terminal: it takes longer than all else that a pipe needs.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell.partition(",")[0], "")) for cell in row))
    Console().print(table)
