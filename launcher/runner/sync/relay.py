"""Relay files through this node: receive them from the previous node, write them, send them to the next.

Each node forwards while it receives, so sending to many nodes takes little longer than sending to one.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, cast

from launcher.errors import LaunchError
from launcher.runner.sync.byte_queue import BUFFER, STALL_TIMEOUT_S, NeighborLostError
from launcher.runner.sync.destination import Destination
from launcher.runner.sync.part_file import PartFile
from launcher.sync.certificate import client_context, server_context
from launcher.sync.stream import RecordType, StreamRecord, read_records

CONNECT_TIMEOUT_S = 30.0
HANDSHAKE_TIMEOUT_S = 10.0
HEARTBEAT_INTERVAL_S = 5.0
"""Seconds between heartbeats to a node that needs no file at the moment."""


def accept(listener: socket.socket, identity: str) -> ssl.SSLSocket:
    """Accept the connection from the previous node; reject peers without this sync's key."""
    context, until = server_context(identity), time.monotonic() + CONNECT_TIMEOUT_S
    while (left := until - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            plain, _ = listener.accept()
        except TimeoutError:  # an alias of socket.timeout only from 3.10 on
            break
        with suppress(OSError):
            return _wrap_tls(context, plain, server_side=True)
    raise NeighborLostError(f"the previous node in the chain did not connect within {CONNECT_TIMEOUT_S:g} s")


def connect(address: str, port: int, *, name: str, identity: str) -> ssl.SSLSocket:
    """Connect to the next node."""
    try:
        plain = socket.create_connection((address, port), timeout=HANDSHAKE_TIMEOUT_S)
    except OSError as error:
        raise LaunchError(f"cannot reach {name} at {address}:{port}: {error.strerror or error}") from error
    try:
        return _wrap_tls(client_context(identity), plain, server_side=False)
    except OSError as error:
        raise NeighborLostError(f"{name} at {address}:{port}: {error.strerror or error}") from error


def _wrap_tls(context: ssl.SSLContext, plain: socket.socket, *, server_side: bool) -> ssl.SSLSocket:
    plain.settimeout(HANDSHAKE_TIMEOUT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        secured = context.wrap_socket(plain, server_side=server_side)
    except BaseException:
        plain.close()
        raise
    secured.settimeout(STALL_TIMEOUT_S)
    return secured


class Forwarder:
    """Forwarder of records to the next node."""

    def __init__(self, connection: ssl.SSLSocket, *, forward: set[int]) -> None:
        self._connection = connection
        self._file = cast(BinaryIO, connection.makefile("wb", buffering=BUFFER))
        self._numbers = forward
        self._forwarding = False
        self._sent_at = time.monotonic()

    def forward(self, record: StreamRecord) -> None:
        """Forward a record if a later node needs its file."""
        if record.kind is RecordType.FILE:
            self._forwarding = record.number in self._numbers
        done = record.kind is RecordType.DONE
        skipped = record.kind is RecordType.ALIVE or not (self._forwarding or done)
        if skipped and time.monotonic() < self._sent_at + HEARTBEAT_INTERVAL_S:
            return
        self._sent_at = time.monotonic()
        try:
            self._file.write((StreamRecord(RecordType.ALIVE) if skipped else record).encode())
            if skipped or done:
                self._file.flush()
            if done:
                # Let the reader close first, so that data in transit is not lost.
                self._connection.recv(1)
        except OSError as error:
            raise NeighborLostError(
                f"the next node in the chain stopped receiving: {error.strerror or error}"
            ) from error


def read_incoming(stream: BinaryIO) -> Iterator[StreamRecord]:
    """Yield the records from the previous node."""
    try:
        yield from read_records(stream)
    except (OSError, EOFError) as error:
        raise NeighborLostError(f"the previous node in the chain stopped sending: {error}") from error


def relay(stream: BinaryIO, forwarder: Forwarder | None, *, destination: Destination, needed: set[int]) -> None:
    """Write the files that this node needs; forward the files that later nodes need."""
    part_file: PartFile | None = None
    try:
        for record in read_incoming(stream):
            if forwarder is not None:
                forwarder.forward(record)
            if record.kind is RecordType.ALIVE:
                continue
            if record.kind is RecordType.FILE and record.number in needed:
                part_file = PartFile(destination.directory, destination.manifest.entries[record.number])
            elif part_file is not None:
                part_file = _write_record(part_file, record)
    finally:
        if part_file is not None:
            part_file.drop()


def _write_record(part_file: PartFile, record: StreamRecord) -> PartFile | None:
    if record.kind is RecordType.DATA:
        part_file.write(record.data)
        return part_file
    if record.kind is RecordType.END:
        part_file.finish(record.data)
    else:
        part_file.drop()
    return None
