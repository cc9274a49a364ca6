"""Holds the idle connections that one launch has left, for a while: ``python3 launcher/transport/pool/daemon.py``.

It gives them to the first launch of the same user that asks, each once, and closes what nobody has asked for in time.
When it is gone, however, so are they: a runner ends with its connection. It reads nothing of them and writes nothing.

Its standard input says what it has (`DaemonConfig`). A launch asks with the names of hosts, one a line, or with an empty line
for all of them; it gets for each a message, host and situation, with the connection's descriptors.
"""

import _socket as socket  # socket itself takes long to import
import os
import select
import struct
import sys
import time

FDS = 4
"""A connection's: standard input, output and error of its ssh, and the pidfd."""
CLIENT_S = 0.5
"""What a launch has to ask and to take."""
LONGEST = 1 << 17
"""Bytes of a question."""
CREDENTIALS = struct.Struct("3i")
"""SO_PEERCRED of unix(7): process, user, group."""


class Entry:
    """One connection."""

    __slots__ = ("fds", "host", "fingerprint")

    def __init__(self, host: str, fingerprint: str, fds: tuple[int, ...]) -> None:
        self.host = host
        self.fingerprint = fingerprint
        self.fds = fds


class DaemonConfig:
    """What a keeper is told, in lines: socket's descriptor and seconds; its path; host, situation and descriptors."""

    def __init__(self, listener: int, seconds: float, place: str, entries: list[Entry]) -> None:
        self.listener = listener
        self.seconds = seconds
        self.place = place
        self.entries = entries

    def to_text(self) -> str:
        """For its standard input."""
        lines = (" ".join([one.host, one.fingerprint, *map(str, one.fds)]) for one in self.entries)
        return "\n".join([f"{self.listener} {self.seconds}", self.place, *lines])

    @classmethod
    def from_text(cls, text: str) -> "DaemonConfig":
        """What `to_text` has written."""
        first, place, *lines = text.split("\n")
        listener, seconds = first.split()
        words = (line.split() for line in lines)
        entries = [Entry(host, fingerprint, tuple(map(int, fds))) for host, fingerprint, *fds in words]
        return cls(int(listener), float(seconds), place, entries)


class PoolDaemon:
    """The connections that are left."""

    def __init__(self, listener: "socket.socket", entries: list[Entry]) -> None:
        self._listener = listener
        self._entries = {entry.fds[1]: entry for entry in entries}
        """By their standard outputs."""
        self._poller = select.poll()
        self._poller.register(listener.fileno(), select.POLLIN)
        for fd in self._entries:
            self._poller.register(fd, select.POLLIN)

    def serve(self, *, until: float) -> None:
        """Give to who asks, until there is nothing more to give, or until then (by the monotonic clock)."""
        while self._entries and (left := until - time.monotonic()) > 0:
            for fd, _ in self._poller.poll(1000 * left):
                if fd == self._listener.fileno():
                    self._answer()
                elif fd in self._entries:
                    # An idle runner says nothing: this one has ended.
                    self._let_go(self._entries[fd])

    def _answer(self) -> None:
        """Give one launch what it asks for."""
        fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # what socket.socket.accept() is made of
        client = socket.socket(fileno=fd)
        try:
            client.settimeout(CLIENT_S)
            # Who says nothing and goes asks for nothing.
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
                self._let_go(entry)

    def _let_go(self, entry: Entry) -> None:
        del self._entries[entry.fds[1]]
        self._poller.unregister(entry.fds[1])
        for fd in entry.fds:
            os.close(fd)


def is_ours(channel: "socket.socket") -> bool:
    """Whether the other end is a process of this user."""
    found = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(found)[1] == os.getuid())


def peer(channel: "socket.socket") -> int:
    """The number of the process at the other end; for who connects, of the keeper, if that has begun."""
    found = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(found)[0])


def main() -> int:
    """Keep what standard input names."""
    config = DaemonConfig.from_text(sys.stdin.buffer.read().decode(errors="surrogateescape"))
    os.chdir("/")
    listener = socket.socket(fileno=config.listener)
    # It does already; SO_PEERCRED, however, names who was the last to say so.
    listener.listen()
    keeper = PoolDaemon(listener, config.entries)
    try:
        keeper.serve(until=time.monotonic() + config.seconds)
    finally:
        try:
            os.unlink(config.place)
        except FileNotFoundError:  # the user's last session has ended, and the directory with it
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
