"""Identify the process at the other end of a Unix socket: SO_PEERCRED of unix(7)."""

import _socket as socket  # importing socket is slow
import os
import struct

CREDENTIALS = struct.Struct("3i")
"""Process, user and group."""


def is_same_user(connection: "socket.socket") -> bool:
    """Return True if the peer is a process of this user."""
    _, user, _ = _credentials(connection)
    return user == os.getuid()


def process_id(connection: "socket.socket") -> int:
    """Return the process id of the peer: of a listener, the process that called listen(2) last."""
    process, _, _ = _credentials(connection)
    return process


def _credentials(connection: "socket.socket") -> tuple[int, int, int]:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, group = CREDENTIALS.unpack(data)
    return process, user, group
