"""Hold the idle connections of one launch for a while: ``python3 launcher/transport/pool/daemon.py``.

The daemon gives them to the first launch of the same user that asks, each once, and closes those that nobody asked
for in time. If it dies, the connections end with it. It never reads or writes them.

Its standard input describes the connections (`DaemonConfig`). A launch asks with host names, one a line, or with an
empty line for all of them. For each connection it receives a message, host and fingerprint, with the descriptors.
"""

import _socket as socket  # importing socket is slow
import os
import select
import struct
import sys
import time

FDS = 4
"""Descriptors of a connection: standard input, output and error of its ssh, and the pidfd."""
CLIENT_S = 0.5
"""Seconds that a launch has to ask and to receive."""
LONGEST = 1 << 17
"""Longest question, in bytes."""
CREDENTIALS = struct.Struct("3i")
"""SO_PEERCRED of unix(7): process, user, group."""


class Entry:
    """Hold one connection."""

    __slots__ = ("fds", "fingerprint", "host")

    def __init__(self, host: str, fingerprint: str, fds: tuple[int, ...]) -> None:
        self.host = host
        self.fingerprint = fingerprint
        self.fds = fds


class DaemonConfig:
    """Configure a daemon, as lines of text: the socket's descriptor and seconds; its path; host, fingerprint and
    descriptors of each connection.
    """

    def __init__(self, listener: int, seconds: float, place: str, entries: list[Entry]) -> None:
        self.listener = listener
        self.seconds = seconds
        self.place = place
        self.entries = entries

    def to_text(self) -> str:
        """Return the text for the daemon's standard input."""
        lines = (" ".join([one.host, one.fingerprint, *map(str, one.fds)]) for one in self.entries)
        return "\n".join([f"{self.listener} {self.seconds}", self.place, *lines])

    @classmethod
    def from_text(cls, text: str) -> "DaemonConfig":
        """Parse what `to_text` has written."""
        first, place, *lines = text.split("\n")
        listener, seconds = first.split()
        words = (line.split() for line in lines)
        entries = [Entry(host, fingerprint, tuple(map(int, fds))) for host, fingerprint, *fds in words]
        return cls(int(listener), float(seconds), place, entries)


class PoolDaemon:
    """Serve the stored connections."""

    def __init__(self, listener: "socket.socket", entries: list[Entry]) -> None:
        self._listener = listener
        self._entries = {entry.fds[1]: entry for entry in entries}
        """Entries by the descriptor of their standard output."""
        self._poller = select.poll()
        self._poller.register(listener.fileno(), select.POLLIN)
        for fd in self._entries:
            self._poller.register(fd, select.POLLIN)

    def serve(self, *, until: float) -> None:
        """Answer launches until no connection is left, or until a time of the monotonic clock."""
        while self._entries and (left := until - time.monotonic()) > 0:
            for fd, _ in self._poller.poll(1000 * left):
                if fd == self._listener.fileno():
                    self._answer()
                elif fd in self._entries:
                    # An idle runner is silent, so readable output means that this one has ended.
                    self._release(self._entries[fd])

    def _answer(self) -> None:
        """Give one launch what it asks for."""
        fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # what socket.socket.accept() is made of
        client = socket.socket(fileno=fd)
        try:
            client.settimeout(CLIENT_S)
            # A client that disconnects without a request gets nothing.
            if is_ours(client) and (asked := client.recv(LONGEST)):
                self._give(client, asked.decode(errors="surrogateescape").split())
        except (OSError, ValueError):
            pass
        finally:
            client.close()

    def _give(self, client: "socket.socket", hosts: list[str]) -> None:
        for entry in [one for one in self._entries.values() if not hosts or one.host in hosts]:
            rights = struct.pack(f"{FDS}i", *entry.fds)
            try:
                client.sendmsg(
                    [f"{entry.host} {entry.fingerprint}".encode(errors="surrogateescape")],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                )
            finally:
                # Whether it arrives or not, it is never given again.
                self._release(entry)

    def _release(self, entry: Entry) -> None:
        del self._entries[entry.fds[1]]
        self._poller.unregister(entry.fds[1])
        for fd in entry.fds:
            os.close(fd)


def is_ours(channel: "socket.socket") -> bool:
    """Return whether the other end is a process of this user."""
    found = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(found)[1] == os.getuid())


def peer(channel: "socket.socket") -> int:
    """Return the process id of the other end; for a client, that of the daemon once it has started."""
    found = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(found)[0])


def main() -> int:
    """Hold the connections that standard input describes."""
    config = DaemonConfig.from_text(sys.stdin.buffer.read().decode(errors="surrogateescape"))
    os.chdir("/")
    listener = socket.socket(fileno=config.listener)
    # The socket listens already, but SO_PEERCRED names the process that called listen() last.
    listener.listen()
    daemon = PoolDaemon(listener, config.entries)
    try:
        daemon.serve(until=time.monotonic() + config.seconds)
    finally:
        try:
            os.unlink(config.place)
        except FileNotFoundError:  # the user's last session has ended, and the directory went with it
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
