"""Print the launcher's own lines on its standard error."""

import asyncio
from contextlib import suppress

from launcher.output.sink import Sink

PRINT_TIMEOUT_S = 10.0
"""Timeout for a terminal to accept a line, in seconds; a blocked one (Ctrl-S) must not hold up the job."""


def note(text: str) -> bytes:
    """Return a line of the launcher as bytes; file names in it may contain bytes that are not UTF-8."""
    return f"launch: {text}\n".encode(errors="surrogateescape")


async def print_note(text: str, stderr: Sink) -> None:
    """Print a line while the job waits or runs; drop it at the deadline."""
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stderr.send(note(text)), PRINT_TIMEOUT_S)


def print_last_note(text: str, stderr: Sink) -> None:
    """Print a line before the event loop runs or after its end; drop it at the deadline."""
    stderr.send_at_the_end(note(text), timeout_s=PRINT_TIMEOUT_S)
