"""Holds the idle connections that one launch has left, for a while: ``python3 launcher/keep/keeper.py``.

It gives them to the first launch of the same user that asks, each once, and closes what nobody has asked for in time.
When it is gone, however, so are they: a runner ends with its connection. It reads nothing of them and writes nothing.
Its standard input says what it has: descriptors that it has inherited.
"""

import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any

NAME = "deeplearning-launch"
"""Of the directory in the user's runtime directory in which keepers listen."""
FDS = 4
"""A connection's: standard input, output and error of its ssh, and the pidfd."""
CLIENT_S = 0.5
"""What a launch has to ask and to take."""
LONGEST = 1 << 17
"""Bytes of a question: the names of the hosts."""


class Keeper:
    """The connections that are left."""

    def __init__(self, listener: socket.socket, entries: list[dict[str, Any]]) -> None:
        self._listener = listener
        self._entries = entries
        for entry in entries:
            for fd in entry["fds"]:
                os.set_inheritable(fd, False)

    def serve(self, *, until: float) -> None:
        """Give to who asks, until there is nothing more to give, or until then (by the monotonic clock)."""
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        for entry in self._entries:
            poller.register(entry["fds"][1], select.POLLIN)
        while self._entries and (left := until - time.monotonic()) > 0:
            events = [fd for fd, _ in poller.poll(1000 * left)]
            for entry in [entry for entry in self._entries if entry["fds"][1] in events]:
                # An idle runner says nothing: this one has ended.
                poller.unregister(entry["fds"][1])
                self._close(entry)
            if self._listener.fileno() in events:
                for entry in self._give():
                    poller.unregister(entry["fds"][1])
                    self._close(entry)

    def _give(self) -> list[dict[str, Any]]:
        """Answer one launch; what it was given."""
        given = []
        client, _ = self._listener.accept()
        with client:
            client.settimeout(CLIENT_S)
            try:
                if not is_ours(client):
                    return []
                hosts = json.loads(client.recv(LONGEST))
                for entry in [one for one in self._entries if hosts is None or one["host"] in hosts]:
                    # Whether it arrives or not, this one is never given again.
                    given.append(entry)
                    said = {"host": entry["host"], "situation": entry["situation"]}
                    socket.send_fds(client, [json.dumps(said).encode("ascii")], entry["fds"])
            except (OSError, ValueError):
                pass
        return given

    def _close(self, entry: dict[str, Any]) -> None:
        self._entries.remove(entry)
        for fd in entry["fds"]:
            os.close(fd)


def is_ours(client: socket.socket) -> bool:
    """Whether the other end is a process of this user (SO_PEERCRED of unix(7))."""
    _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def main() -> int:
    """Keep what standard input names."""
    asked = json.load(sys.stdin)
    listener = socket.socket(fileno=asked["listener"])
    try:
        Keeper(listener, asked["entries"]).serve(until=time.monotonic() + asked["seconds"])
    finally:
        os.unlink(asked["place"])  # noqa: PTH108  (pathlib is slow to import)
    return 0


if __name__ == "__main__":
    sys.exit(main())
