"""Print results for people and programs: tables on a terminal, aligned columns in a pipe, JSON on request."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from rich.table import Table

Function = TypeVar("Function", bound=Callable[..., Any])
JSON_VERSION: Final = 1
"""Version of each JSON object that a command prints. The same version may gain keys (docs/dlcluster-json.md)."""
STYLES: Final = {
    **dict.fromkeys(("running", "RUNNING", "SUCCEEDED", "ok", "active"), "green"),
    **dict.fromkeys(("pending", "PENDING", "CANCELLED", "warning"), "yellow"),
    **dict.fromkeys(("gone", "stopped", "terminated", "FAILED", "problem", "failed", "no answer"), "red"),
}
"""Colors of states on a terminal."""


def json_option(function: Function) -> Function:
    """Add ``--json`` as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/dlcluster-json.md).")(
        function
    )


def print_json(**document: Any) -> None:
    """Print one JSON object with its version."""
    print(json.dumps({"version": JSON_VERSION, **document}, indent=2))


def print_json_line(**document: Any) -> None:
    """Print one JSON object with its version on one line, so that a reader of several sees where each ends."""
    print(json.dumps({"version": JSON_VERSION, **document}), flush=True)


def is_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout.isatty()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; an empty cell is a hyphen."""
    if is_terminal():
        from rich.console import Console

        Console().print(rich_table(columns, rows))
    else:
        print(align_columns([columns, *fill_cells(rows)]), end="")


def fill_cells(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the rows without control characters; an empty cell is a hyphen."""
    return [[printable(cell) or "-" for cell in row] for row in rows]


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def printable(text: str, *, keep: str = "") -> str:
    """Replace each control character not in `keep`: a node may write anything, and a terminal would obey."""
    return "".join(char if char.isprintable() or char in keep else " " for char in text)


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
    """Return a table for a terminal, with the states in color."""
    # Import only for a terminal: this takes longer than everything else that a pipe needs.
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in fill_cells(rows):
        table.add_row(*(Text(cell, style=STYLES.get(cell.partition(",")[0], "")) for cell in row))
    return table
