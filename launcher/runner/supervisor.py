"""Sees a node's ranks to their end: forwards output, reports exits, stops all when told to.

One thread around one selector. Told to stop is: standard input closed, the launcher's side of
the output gone, or TERM, INT or HUP. Ranks then get TERM, and after the grace KILL.
"""

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from launcher.channel import Channel
from launcher.frames import Kind, encode
from launcher.runner import processes

READ_SIZE = 1 << 16
DRAIN_S = 0.5
"""How long an ended rank's output may be silent before it counts as read."""
POLL_S = 0.05
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(kw_only=True, slots=True)
class _Rank:
    index: int
    process: subprocess.Popen[bytes]
    streams: dict[int, Kind] = field(default_factory=dict)
    code: int | None = None
    drain_until: float = 0.0
    kill_at: float | None = None
    reported: bool = False

    @property
    def group(self) -> int:
        return self.process.pid


class Supervisor:
    """The ranks of one node."""

    def __init__(
        self, channel: Channel, *, stop_fd: int, grace_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._grace_s = grace_s
        self._clock = clock
        self._alive: list[_Rank] = []
        self._selector = selectors.DefaultSelector()
        self._watch(stop_fd, lambda: self._stop_if_closed(stop_fd))
        self._watch_signals()

    def start(self, command: Sequence[str], *, index: int, environment: Mapping[str, str], cwd: str) -> None:
        """Start one rank; one that cannot start is reported with the exit code of a shell."""
        try:
            process = processes.start(command, environment=environment, cwd=cwd)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "command not found" if missing else (error.strerror or str(error))
            self.refuse(index, reason=f"{command[0]}: {reason}", code=127 if missing else 126)
            return
        rank = _Rank(index=index, process=process)
        self._alive.append(rank)
        self._watch_rank(rank)

    def refuse(self, index: int, *, reason: str, code: int) -> None:
        """Report a process that was not started."""
        self._send(Kind.STDERR, f"{reason}\n".encode(errors="surrogateescape"), index)
        self._send(Kind.EXIT, str(code).encode("ascii"), index)

    def run(self) -> None:
        """Return when every rank has ended and nobody is left in its process group."""
        while self._alive:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            if self._channel.lost:
                self._stop()
            for rank in self._alive:
                self._kill_if_due(rank)
                self._report_if_ended(rank)
            self._alive = [rank for rank in self._alive if not self._is_over(rank)]

    def _timeout(self) -> float | None:
        # The kernel tells when a leader ends, but not when its group is empty.
        return POLL_S if any(rank.kill_at is not None for rank in self._alive) else None

    def _kill_if_due(self, rank: _Rank) -> None:
        if rank.kill_at is not None and self._clock() >= rank.kill_at:
            processes.signal_group(rank.group, signal.SIGKILL)

    def _is_over(self, rank: _Rank) -> bool:
        if not rank.reported or not processes.group_is_gone(rank.group) or not self._is_drained(rank):
            return False
        for fd, kind in tuple(rank.streams.items()):
            os.set_blocking(fd, False)
            with suppress(BlockingIOError):
                self._forward(rank, fd, kind)
            self._close_stream(rank, fd)
        return True

    def _is_drained(self, rank: _Rank) -> bool:
        """Whether all that matters was read: a process that got away can hold a stream open for ever."""
        until = min(rank.drain_until, rank.kill_at or rank.drain_until)
        return not rank.streams or self._clock() >= until

    # ---- what the selector watches ----

    def _watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def _watch_signals(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        self._wakeup = (reader, writer)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

        def woken() -> None:
            if set(reader.recv(64)) & set(STOP_SIGNALS):
                self._stop()

        self._watch(reader.fileno(), woken)

    def _watch_rank(self, rank: _Rank) -> None:
        process = rank.process
        if process.stdout is None or process.stderr is None:
            raise ValueError("a rank is started with pipes")
        self._watch_stream(rank, process.stdout.fileno(), Kind.STDOUT)
        self._watch_stream(rank, process.stderr.fileno(), Kind.STDERR)
        ended = os.pidfd_open(process.pid)
        self._watch(ended, lambda: self._leader_ended(rank, ended))

    def _watch_stream(self, rank: _Rank, fd: int, kind: Kind) -> None:
        rank.streams[fd] = kind
        self._watch(fd, lambda: self._forward(rank, fd, kind))

    # ---- what happens ----

    def _forward(self, rank: _Rank, fd: int, kind: Kind) -> None:
        data = os.read(fd, READ_SIZE)
        if data:
            self._send(kind, data, rank.index)
            rank.drain_until = self._clock() + DRAIN_S
        else:
            self._close_stream(rank, fd)

    def _close_stream(self, rank: _Rank, fd: int) -> None:
        if rank.streams.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def _leader_ended(self, rank: _Rank, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        rank.code = processes.exit_code(rank.process.wait())
        rank.drain_until = self._clock() + DRAIN_S
        # What a rank left running has no job any more; the node's other ranks go on.
        self._end(rank)

    def _report_if_ended(self, rank: _Rank) -> None:
        if not rank.reported and rank.code is not None and self._is_drained(rank):
            rank.reported = True
            self._send(Kind.EXIT, str(rank.code).encode("ascii"), rank.index)

    def _stop_if_closed(self, fd: int) -> None:
        if not os.read(fd, READ_SIZE):
            self._selector.unregister(fd)
            self._stop()

    def _stop(self) -> None:
        for rank in self._alive:
            self._end(rank)

    def _end(self, rank: _Rank) -> None:
        if rank.kill_at is None:
            rank.kill_at = self._clock() + self._grace_s
            processes.signal_group(rank.group, signal.SIGTERM)

    def _send(self, kind: Kind, payload: bytes, index: int) -> None:
        self._channel.send(encode(kind, payload, process=index))
