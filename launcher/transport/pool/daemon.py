"""Keep the idle connections of one launch for a while: ``python3 launcher/transport/pool/daemon.py``.

The daemon hands each connection only to the first launch of the same user that requests it, and closes the rest when
its time is up. If it dies, the connections end with it. It never reads or writes them.

Its standard input describes the connections (`DaemonConfig`). A launch sends host names, one per line, or an empty line
for all of them. For each connection it receives a message, host and fingerprint, with the descriptors.
"""

import _socket as socket  # importing socket is slow
import os
import select
import struct
import sys
import time

if not __package__:
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from launcher.peer_credentials import is_same_user

FDS = 4
"""Number of descriptors of a connection: standard input, output and error of its ssh, and the pidfd."""
CLIENT_TIMEOUT_S = 0.5
"""Seconds for a launch to send its request and receive the connections."""
MAX_MESSAGE = 1 << 17
"""Longest request or answer, in bytes."""


class DaemonEntry:
    """One connection that the daemon keeps."""

    __slots__ = ("fds", "fingerprint", "host")

    def __init__(self, host: str, fingerprint: str, fds: tuple[int, ...]) -> None:
        self.host = host
        self.fingerprint = fingerprint
        self.fds = fds


class DaemonConfig:
    """Configuration of a daemon, as lines of text: the socket's descriptor and seconds; its path; host, fingerprint and
    descriptors of each connection.
    """

    def __init__(self, listener: int, seconds: float, socket_path: str, entries: list[DaemonEntry]) -> None:
        self.listener = listener
        self.seconds = seconds
        self.socket_path = socket_path
        self.entries = entries

    def to_text(self) -> str:
        """Return the text for the daemon's standard input."""
        lines = (" ".join([entry.host, entry.fingerprint, *map(str, entry.fds)]) for entry in self.entries)
        return "\n".join([f"{self.listener} {self.seconds}", self.socket_path, *lines])

    @classmethod
    def from_text(cls, text: str) -> "DaemonConfig":
        """Parse the result of `to_text`."""
        first, socket_path, *lines = text.split("\n")
        listener, seconds = first.split()
        words = (line.split() for line in lines)
        entries = [DaemonEntry(host, fingerprint, tuple(map(int, fds))) for host, fingerprint, *fds in words]
        return cls(int(listener), float(seconds), socket_path, entries)


class PoolDaemon:
    """Server of the kept connections."""

    def __init__(self, listener: "socket.socket", entries: list[DaemonEntry]) -> None:
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
                    # An idle runner is silent, so readable output means that it has ended.
                    self._release(self._entries[fd])

    def _answer(self) -> None:
        """Give one launch the connections that it requests."""
        fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # the implementation of socket.socket.accept()
        client = socket.socket(fileno=fd)
        try:
            client.settimeout(CLIENT_TIMEOUT_S)
            # A client that disconnects without a request gets nothing.
            if is_same_user(client) and (request := client.recv(MAX_MESSAGE)):
                self._give(client, request.decode(errors="surrogateescape").split())
        except (OSError, ValueError):
            pass
        finally:
            client.close()

    def _give(self, client: "socket.socket", hosts: list[str]) -> None:
        for entry in [entry for entry in self._entries.values() if not hosts or entry.host in hosts]:
            rights = struct.pack(f"{FDS}i", *entry.fds)
            try:
                client.sendmsg(
                    [f"{entry.host} {entry.fingerprint}".encode(errors="surrogateescape")],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                )
            finally:
                # Do not offer it again, whether or not it arrives.
                self._release(entry)

    def _release(self, entry: DaemonEntry) -> None:
        del self._entries[entry.fds[1]]
        self._poller.unregister(entry.fds[1])
        for fd in entry.fds:
            os.close(fd)


def main() -> int:
    """Keep the connections that standard input describes."""
    config = DaemonConfig.from_text(sys.stdin.buffer.read().decode(errors="surrogateescape"))
    os.chdir("/")
    listener = socket.socket(fileno=config.listener)
    # The socket listens already, but SO_PEERCRED reports the process that called listen() last.
    listener.listen()
    daemon = PoolDaemon(listener, config.entries)
    try:
        daemon.serve(until=time.monotonic() + config.seconds)
    finally:
        try:
            os.unlink(config.socket_path)
        except FileNotFoundError:  # The user's last session has ended, and the directory with it.
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
