"""Read and write the one remote procedure call that stands in for NFS: NULL of program 100003, version 4.

"ONC RPC version 2" (RFC 5531) defines the messages, "NFS version 4" (RFC 7530) the program. The answer contains the
file system's ID, which real NFS does not send, so that the node knows which directory to mount.
"""

import struct
from collections.abc import Callable
from typing import Final

NFS: Final = (100003, 4, 0)
"""Program, version and procedure."""
_LAST_FRAGMENT: Final = 0x80000000
_CALL, _REPLY, _ACCEPTED, _SUCCESS, _RPC_VERSION = 0, 1, 0, 0, 2
_NO_CREDENTIALS: Final = (0, 0, 0, 0)
MAX_BYTES: Final = 4096


def call(xid: int) -> bytes:
    """Return the call as a record."""
    return _record(struct.pack(">10I", xid, _CALL, _RPC_VERSION, *NFS, *_NO_CREDENTIALS))


def reply(request: bytes, file_system: str) -> bytes | None:
    """Return the answer to a call as a record; None if the request is another one."""
    if len(request) != 40:
        return None
    xid, kind, version, *procedure = struct.unpack(">6I", request[:24])
    if (kind, version, tuple(procedure)) != (_CALL, _RPC_VERSION, NFS):
        return None
    return _record(struct.pack(">6I", xid, _REPLY, _ACCEPTED, 0, 0, _SUCCESS) + file_system.encode())


def file_system_in(answer: bytes) -> str:
    """Return the file system's ID in an answer."""
    return answer[24:].decode()


def read_record(receive: Callable[[int], bytes]) -> bytes:
    """Read one record. Raises ConnectionError if the peer closes or sends something else."""
    (mark,) = struct.unpack(">I", _exactly(receive, 4))
    size = mark & ~_LAST_FRAGMENT
    if not mark & _LAST_FRAGMENT or size > MAX_BYTES:
        raise ConnectionError("no record")
    return _exactly(receive, size)


def _exactly(receive: Callable[[int], bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (piece := receive(size - len(data))):
            raise ConnectionError("the peer has ended the connection")
        data += piece
    return data


def _record(message: bytes) -> bytes:
    return struct.pack(">I", _LAST_FRAGMENT | len(message)) + message
