"""Handle the runner's end of the connection: frames out, spec and heartbeats in. Nothing here blocks."""

import os
import select
import time
from _collections_abc import Callable  # importing collections is slow

from launcher.transport.protocol import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, FrameType, encode

READ_SIZE = 1 << 16
MAX_PENDING = 1 << 20
"""Bytes that may be buffered for a slow launcher before the ranks must wait."""


class RunnerChannel:
    """Channel to the launcher; detects the launcher's end."""

    def __init__(self, *, source: int, sink: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.source = source
        self.sink = sink
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        self.stop_requested = False
        """True if the processes must end: the launcher closed its end or died. It may still be reading."""
        self.grace_s = 0.0
        """Seconds that the launcher, after its last heartbeat, waits for the processes to end."""
        self.reader_gone = False
        """True if the launcher no longer reads: it ended or was silent for too long."""
        self._pending = bytearray()
        self._clock = clock
        self._received_at = self._sent_at = clock()

    @property
    def has_pending(self) -> bool:
        """Return True if there are unwritten bytes."""
        return bool(self._pending)

    @property
    def is_full(self) -> bool:
        """Return True if the ranks should wait until the launcher has read."""
        return len(self._pending) > MAX_PENDING

    def send(self, kind: int, payload: bytes = b"", *, process: int = 0) -> None:
        """Write a frame, buffered if necessary."""
        self.send_bytes(encode(kind, payload, process=process))

    def send_bytes(self, data: bytes) -> None:
        """Write encoded frames, or the preamble before the first frame."""
        if not self.reader_gone:
            self._sent_at = self._clock()
            self._pending += data
            self.flush()

    def flush(self) -> None:
        """Write as much as the launcher takes now."""
        try:
            while self._pending:
                del self._pending[: os.write(self.sink, self._pending)]
        except BlockingIOError:
            return
        except OSError:
            self._give_up()

    def receive(self) -> bytes:
        """Read the launcher's input."""
        try:
            data = os.read(self.source, READ_SIZE)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.stop_requested = self.stop_requested or not data
        self._received_at = self._clock()
        return data

    def count_unread_input_as_heartbeat(self) -> None:
        """Count unread input as a heartbeat after a time without room to read input."""
        if select.select([self.source], [], [], 0)[0]:
            self._received_at = self._clock()

    def keep_alive(self) -> float:
        """Send a heartbeat if it is due, and check the launcher's heartbeats; return the time until the next check."""
        now = self._clock()
        timeout_s = HEARTBEAT_TIMEOUT_S + (self.grace_s if self.stop_requested else 0.0)
        if now - self._received_at >= timeout_s:
            self._give_up()
        if self.reader_gone:
            return HEARTBEAT_INTERVAL_S
        if now - self._sent_at >= HEARTBEAT_INTERVAL_S:
            self.send(FrameType.HEARTBEAT)
        return max(0.0, min(self._sent_at + HEARTBEAT_INTERVAL_S, self._received_at + timeout_s) - now)

    def _give_up(self) -> None:
        self.stop_requested = self.reader_gone = True
        self._pending.clear()
