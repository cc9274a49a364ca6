"""Show snapshots of a cluster: an updated table on a terminal, a block of lines each elsewhere, or JSON."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cli.jobs.records import utc_now
from cli.output import align_columns, fill_cells, is_terminal, print_json_line, rich_table
from cli.watch.snapshot import Snapshot

Show = Callable[[Snapshot], None]
TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


@contextmanager
def display(*, as_json: bool) -> Iterator[Show]:
    """Yield the function that shows a snapshot."""
    if as_json:
        yield _print_json
    elif is_terminal() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):  # these cannot move the cursor
        with _live() as show:
            yield show
    else:
        yield _print_block


def _print_json(snapshot: Snapshot) -> None:
    print_json_line(time=f"{utc_now():{TIME_FORMAT}}", **snapshot.to_dict())


def _print_block(snapshot: Snapshot) -> None:
    columns, rows = snapshot.table()
    below = "".join(f"{line}\n" for line in snapshot.lines())
    print(
        f"{utc_now():{TIME_FORMAT}} {snapshot.status.summary}\n{align_columns([columns, *fill_cells(rows)])}{below}",
        flush=True,
    )


@contextmanager
def _live() -> Iterator[Show]:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="visible") as live:

        def show(snapshot: Snapshot) -> None:
            columns, rows = snapshot.table()
            head = Text(f"{snapshot.status.summary}, {utc_now():%H:%M:%S} UTC; Ctrl-C ends")
            live.update(Group(head, rich_table(columns, rows), *map(Text, snapshot.lines())), refresh=True)

        yield show
