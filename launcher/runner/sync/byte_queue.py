"""The stream of files as the launcher sends it, and what both ends of a node's part of the chain have in common."""

import io
import queue
from collections.abc import Callable

from launcher.errors import LaunchError

STALL_S = 60.0
"""Who takes or sends nothing for so long is given up."""
BUFFER = 1 << 18
MOST_WAITING = 256
"""Pieces from the launcher, each of at most launcher.runner.runner_channel.READ_SIZE bytes, that may wait for the disk."""


class NeighbourLostError(LaunchError):
    """The node before or after this one has gone; why, it will say itself."""


class ByteQueue(io.RawIOBase):
    """The stream as the launcher sends it: filled by the thread that has the link, read by the one that works."""

    def __init__(self, *, on_room: Callable[[], None]) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._rest = b""
        self._on_room = on_room

    @property
    def full(self) -> bool:
        """Whether more should wait."""
        return self._pieces.qsize() >= MOST_WAITING

    def put(self, piece: bytes) -> None:
        self._pieces.put(piece)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # of any buffer; a reader gives these two
        if not self._rest:
            was_full = self.full
            self._rest = self._next_piece()
            if was_full:
                self._on_room()
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _next_piece(self) -> bytes:
        try:
            return self._pieces.get(timeout=STALL_S)
        except queue.Empty as error:
            raise TimeoutError(f"nothing came for {STALL_S:g} s") from error
