"""Test the progress that a sync shows."""

import asyncio
import os
import pty
import select

import pytest

from launcher.output.output_stream import OutputStream
from launcher.sync import progress
from launcher.sync.progress import FetchProgress, Progress, show_progress


def show(fd: int) -> None:
    """Show half of 400 MB sent to 8 nodes, a few times."""

    async def send() -> None:
        half = Progress(400_000_000, nodes=8)
        async with show_progress(half, OutputStream(fd)):
            half.advance(200_000_000)
            await asyncio.sleep(0.1)

    asyncio.run(send())


def read_until(terminal: int, end: bytes) -> bytes:
    """Read from a terminal, piece by piece, until it has printed the end; return what came before."""
    printed = b""
    while not printed.endswith(end):
        assert select.select([terminal], [], [], 60)[0], printed
        printed += os.read(terminal, 1 << 16)
    return printed.removesuffix(end)


def test_terminal_gets_a_bar_that_is_cleared_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAW_INTERVAL_S", 0.01)
    ours, terminal = pty.openpty()
    show(terminal)
    os.write(terminal, b"over")
    printed = read_until(ours, b"over").decode()
    os.close(terminal)
    os.close(ours)
    assert "\r\x1b[K[############............] 200.0 MB of 400.0 MB sent to 8 nodes, " in printed
    assert printed.endswith("\r\x1b[K")
    assert "\n" not in printed


def test_progress_in_a_log_is_a_line_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.01)
    reader, writer = os.pipe()
    show(writer)
    first = os.read(reader, 1 << 16).decode().splitlines()[0]
    os.close(reader)
    os.close(writer)
    assert first.startswith("launch: 200.0 MB of 400.0 MB sent to 8 nodes, ")


def test_fetch_adds_up_what_the_nodes_report() -> None:
    ours = FetchProgress(nodes=2)
    ours.update(0, {"files": 1, "bytes": 1_000_000, "total": 4_000_000})
    ours.update(1, {"files": 1, "bytes": 2_000_000, "total": 2_000_000})
    ours.update(0, {"files": 2, "bytes": 4_000_000, "total": 4_000_000})
    assert ours.line().startswith("launch: 6.0 MB of 6.0 MB fetched by 2 nodes, ")
    assert ours.summary().startswith("launch: 3 files, 6.0 MB, fetched by 2 nodes in 0.0 s, ")
