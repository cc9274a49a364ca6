"""Call the file system's server, and track whether it still answers, as an NFS client does."""

import contextlib
import socket
import struct
import threading
import time
from typing import Final

TIMEOUT_S: Final = 30.0
CALL: Final = struct.pack(">11I", 0x80000000 | 40, 1, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
"""NULL call of NFS, version 4; local/storage/rpc.py explains it."""
ANSWER_HEADER: Final = 28
RESERVED_PORTS: Final = range(665, 1024)
CALL_INTERVAL_S: Final = 0.5
ANSWER_VALID_S: Final = 2.0
"""Seconds for which an answer shows that the server is there."""
RECONNECT_S: Final = 1.0


class AccessDeniedError(ConnectionError):
    """The server ends the connection instead of answering."""


def connect(address: str, port: int) -> socket.socket:
    """Connect from a reserved port, which only root can use. Raises OSError."""
    for own_port in RESERVED_PORTS:
        try:
            return socket.create_connection((address, port), TIMEOUT_S, source_address=("", own_port))
        except OSError as error:
            if "in use" not in str(error) and "assign" not in str(error):
                raise
    raise OSError("no reserved port is free")


def probe(connection: socket.socket) -> str:
    """Return the file system that the server at the other end serves. Raises OSError and AccessDeniedError."""
    connection.sendall(CALL)
    answer = connection.recv(4096)
    if len(answer) <= ANSWER_HEADER:
        raise AccessDeniedError
    return answer[ANSWER_HEADER:].decode()


class ServerConnection:
    """The connection to the file system's server.

    A thread probes it repeatedly and reconnects forever, like a hard mount.
    """

    def __init__(self, address: str, port: int, connection: socket.socket) -> None:
        self._address = (address, port)
        self._connection = connection
        self._answered = time.monotonic()
        self._answer_received = threading.Condition()

    def start(self) -> None:
        threading.Thread(target=self._call_for_ever, name="server", daemon=True).start()

    def wait_until_it_answers(self) -> None:
        with self._answer_received:
            while time.monotonic() - self._answered > ANSWER_VALID_S:
                self._answer_received.wait()

    def _call_for_ever(self) -> None:
        while True:
            with contextlib.suppress(OSError), self._connection as connection:
                while True:
                    probe(connection)
                    with self._answer_received:
                        self._answered = time.monotonic()
                        self._answer_received.notify_all()
                    time.sleep(CALL_INTERVAL_S)
            with self._answer_received:
                self._answered = float("-inf")
            self._reconnect()

    def _reconnect(self) -> None:
        while True:
            time.sleep(RECONNECT_S)
            with contextlib.suppress(OSError):
                self._connection = connect(*self._address)
                return
