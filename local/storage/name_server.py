"""Answer a VPC's nodes with the addresses of mount targets, like AWS's name server; it knows no other names."""

import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from typing import Final

from local.network.addresses import NAME_SERVER_ADDRESS
from local.network.vpc_network import in_namespace

PORT: Final = 53
_ANSWER, _NO_SUCH_NAME = 0x8180, 0x8183
_A, _INTERNET, _TTL_S = 1, 1, 1


def answer(query: bytes, find: Callable[[str], str | None]) -> bytes | None:
    """Return the answer to a query for one name (RFC 1035); None for any other packet."""
    labels, end = _name(query)
    if end is None:
        return None
    question = query[12 : end + 4]
    (kind,) = struct.unpack(">H", query[end : end + 2])
    address = find(".".join(labels).lower())
    flags = _NO_SUCH_NAME if address is None else _ANSWER
    has_answer = address is not None and kind == _A
    header = query[:2] + struct.pack(">5H", flags, 1, int(has_answer), 0, 0)
    if address is None or not has_answer:
        return header + question
    record = struct.pack(">3HIH", 0xC00C, _A, _INTERNET, _TTL_S, 4) + socket.inet_aton(address)
    return header + question + record


def _name(query: bytes) -> tuple[list[str], int | None]:
    """Return the labels of the name in a query, and where the name ends."""
    labels, position = [], 12
    while position + 5 <= len(query) and (size := query[position]) != 0:
        labels.append(query[position + 1 : position + 1 + size].decode("ascii", "replace"))
        position += 1 + size
    return labels, position + 1 if position + 5 <= len(query) else None


class _Server(socketserver.ThreadingUDPServer):
    daemon_threads = True


def start_name_server(namespace: str, find: Callable[[str], str | None]) -> Callable[[], None]:
    """Serve a VPC in the background; return the function that stops it."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, connection = self.request
            if reply := answer(query, find):
                connection.sendto(reply, self.client_address)

    def end() -> None:
        server.shutdown()
        server.server_close()

    server = in_namespace(namespace, lambda: _Server((NAME_SERVER_ADDRESS, PORT), Handler))
    threading.Thread(target=server.serve_forever, name=f"names-{namespace}", daemon=True).start()
    return end
