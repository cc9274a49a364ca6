"""Show the progress of an upload on standard error."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cli.files.local_files import find_checkouts_below
from cli.files.upload import Progress, Upload
from cli.output import printable

MIN_BAR_BYTES: Final = 1 << 20
"""Smallest upload with a bar; a smaller one finishes before anyone could read it."""
NAMED: Final = 3
"""Largest number of files or folders that a message names."""
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB")


@contextmanager
def upload_bar(size: int) -> Iterator[Progress]:
    """Yield the callback that advances a bar for an upload of `size` bytes, if it is large and a terminal shows it.

    The bar is erased at the end of the block: an error message must not appear inside it.
    """
    if size < MIN_BAR_BYTES or not sys.stderr.isatty():
        yield lambda sent: None
        return
    # Import only for a terminal: this takes longer than everything else.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("sending to the master", total=size)
        yield lambda sent: bars.advance(task, sent)


def checkouts_note(directory: Path) -> str:
    """Return one line that names the git checkouts below a directory that is none; empty without any."""
    checkouts = find_checkouts_below(directory)
    if not checkouts:
        return ""
    place = printable(str(directory))
    return f"{place} contains other git checkouts: {_first(checkouts)}; to send one alone, change to its directory"


def summary(uploaded: Upload) -> str:
    """Return one line about the files that were uploaded."""
    left_out = f"; git ignores {_first(uploaded.ignored)}" if uploaded.ignored else ""
    if not uploaded.sent_files:
        return f"the master's copy already has all {plural(uploaded.files)}{left_out}"
    size = readable(uploaded.sent_size)
    return f"sent {uploaded.sent_files} of {plural(uploaded.files)}, {size}, to the master{left_out}"


def _first(paths: Sequence[str]) -> str:
    """Name the folders first, because data is in them."""
    ordered = sorted(paths, key=lambda path: (not path.endswith("/"), path.count("/"), path))
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(map(printable, ordered[:NAMED])) + more


def plural(files: int) -> str:
    """Format a number of files for display."""
    return f"{files} file" if files == 1 else f"{files} files"


def readable(size: float) -> str:
    """Format a number of bytes with a unit for display."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
