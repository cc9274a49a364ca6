"""Prefix each whole line of the processes' output with its node and process."""

from collections import deque

from launcher.output.sink import Streams

TAIL_LINES = 10
MAX_LINE = 1 << 20
"""Longest line in bytes; longer ones are split, so that output without line ends cannot fill the memory."""


class ProcessOutput:
    """Output of one process: forwards both streams, and keeps their last lines."""

    def __init__(self, prefix: str, streams: Streams, *, is_shown: bool = True) -> None:
        self._prefix = prefix.encode()
        self._streams = streams
        self.is_shown = is_shown
        self._pending = {kind: bytearray() for kind in streams}
        self.tail: deque[bytes] = deque(maxlen=TAIL_LINES)

    async def write(self, kind: int, data: bytes) -> None:
        """Forward the lines that `data` completes; buffer the rest."""
        pending = self._pending[kind]
        end = data.rfind(b"\n") + 1
        if end:
            whole = bytes(pending) + data[:end]
            pending.clear()
            await self._emit(kind, whole)
        pending += data[end:]
        if len(pending) > MAX_LINE:
            await self._finish(kind)

    async def finish(self) -> None:
        """Forward unfinished last lines."""
        for kind in self._streams:
            await self._finish(kind)

    async def _finish(self, kind: int) -> None:
        pending = self._pending[kind]
        if pending:
            whole = bytes(pending) + b"\n"
            pending.clear()
            await self._emit(kind, whole)

    async def _emit(self, kind: int, lines: bytes) -> None:
        split = lines.removesuffix(b"\n").split(b"\n")
        self.tail.extend(split[-TAIL_LINES:])
        if self.is_shown:
            await self._streams[kind].send(b"".join(self._prefix + line + b"\n" for line in split))
