"""Queue the launcher's stream of files between the thread that receives it and the one that writes it."""

import io
import queue
from collections.abc import Callable

from launcher.errors import LaunchError

STALL_TIMEOUT_S = 60.0
"""Seconds without progress after which a neighbor counts as lost."""
BUFFER = 1 << 18
MAX_PIECES = 256
"""Maximum number of pieces, each of at most runner_channel.READ_SIZE bytes, that wait for the disk."""


class NeighborLostError(LaunchError):
    """The previous or next node is gone; it reports its own error."""


class ByteQueue(io.RawIOBase):
    """File object for the launcher's stream: the channel's thread fills it, the sync's thread reads it."""

    def __init__(self, *, on_room: Callable[[], None]) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._rest = b""
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        """Return True if the channel should stop reading for now."""
        return self._pieces.qsize() >= MAX_PIECES

    def put(self, piece: bytes) -> None:
        self._pieces.put(piece)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # any buffer; a reader passes these two
        if not self._rest:
            was_full = self.is_full
            self._rest = self._next_piece()
            if was_full:
                self._on_room()
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _next_piece(self) -> bytes:
        try:
            return self._pieces.get(timeout=STALL_TIMEOUT_S)
        except queue.Empty as error:
            raise TimeoutError(f"nothing arrived for {STALL_TIMEOUT_S:g} s") from error
