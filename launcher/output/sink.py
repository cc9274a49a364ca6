"""Define where output goes: to the terminal, or to a job's log."""

from collections.abc import Mapping
from typing import Protocol


class Sink(Protocol):
    """Destination of output: a launcher.output.output_stream, or a log (launcher.detached.unit)."""

    write_error: str | None
    """The error that ended its output, if any."""

    @property
    def is_terminal(self) -> bool:
        """Return True for a terminal."""

    async def send(self, data: bytes) -> None:
        """Write all of `data` without interleaving other writes."""

    def send_at_the_end(self, data: bytes, *, timeout_s: float) -> None:
        """Write `data` after everything else."""

    def reader_has_gone(self) -> bool:
        """Return True if the reader has left."""


Streams = Mapping[int, Sink]
"""Sinks of standard output and standard error, by launcher.transport.protocol.FrameType."""
