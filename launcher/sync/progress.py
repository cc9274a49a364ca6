"""Show the progress of a sync: a bar on a terminal, occasional lines elsewhere."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from launcher.output.sink import Sink

Counts: TypeAlias = dict[str, int]
"""A node's counts of a download: files that are whole, bytes that have arrived, and the total of bytes to come."""
REDRAW_INTERVAL_S = 0.2
LINE_INTERVAL_S = 10.0
WIDTH = 24
CLEAR = "\r\x1b[K"
"""See "CSI sequences" in console_codes(4)."""


class Progress:
    """Count of the bytes that the first node has received; the others are a few MB behind."""

    def __init__(self, total: int, *, nodes: int) -> None:
        self.sent = 0
        self._total = total
        self._nodes = nodes
        self._started_at = time.monotonic()

    def advance(self, count: int) -> None:
        self.sent += count

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._started_at

    def _text(self) -> str:
        return self._describe("sent to")

    def _describe(self, verb: str) -> str:
        # The stream is a little longer than its files.
        sent = min(self.sent, self._total)
        rate = sent / max(self.seconds, 0.001)
        return (
            f"{megabytes(sent)} of {megabytes(self._total)} {verb} {plural(self._nodes, 'node')}, {megabytes(rate)}/s"
        )

    def line(self) -> str:
        """Return a line for a log."""
        return f"launch: {self._text()}\n"

    def bar(self) -> str:
        """Return a line for a terminal, drawn over the previous one."""
        filled = WIDTH * min(self.sent, self._total) // max(self._total, 1)
        return f"{CLEAR}[{'#' * filled}{'.' * (WIDTH - filled)}] {self._text()}"


class FetchProgress(Progress):
    """Count of what all nodes have fetched from a bucket; their totals grow while they list it."""

    def __init__(self, *, nodes: int) -> None:
        super().__init__(0, nodes=nodes)
        self.files = 0
        self._counts: dict[int, Counts] = {}

    def update(self, node_rank: int, counts: Counts) -> None:
        """Replace a node's counts."""
        self._counts[node_rank] = counts
        self.files, self.sent, self._total = (
            sum(counts[name] for counts in self._counts.values()) for name in ("files", "bytes", "total")
        )

    def _text(self) -> str:
        return self._describe("fetched by")

    def summary(self) -> str:
        """Return a line for the end."""
        rate = megabytes(self.sent / max(self.seconds, 0.001))
        nodes = plural(self._nodes, "node")
        return (
            f"launch: {plural(self.files, 'file')}, {megabytes(self.sent)}, fetched by {nodes} in "
            f"{self.seconds:.1f} s, {rate}/s\n"
        )


@asynccontextmanager
async def show_progress(progress: Progress, sink: Sink) -> AsyncIterator[None]:
    """Show the progress until the block ends; a slow reader delays nothing else."""
    showing = asyncio.create_task(_show(progress, sink))
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
        if sink.is_terminal:
            await sink.send(CLEAR.encode())


async def _show(progress: Progress, sink: Sink) -> None:
    while True:
        await asyncio.sleep(REDRAW_INTERVAL_S if sink.is_terminal else LINE_INTERVAL_S)
        await sink.send((progress.bar() if sink.is_terminal else progress.line()).encode())


def megabytes(count: float) -> str:
    """Format a size for display."""
    return f"{count / 1e6:.1f} MB"


def plural(count: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
