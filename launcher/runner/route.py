"""Ask the kernel for the network interface that leads to a peer; names, such as docker0, mislead.

See rtnetlink(7): RTM_GETROUTE answers with the route's output interface.
"""

import _socket as socket  # importing socket is slow
import struct

NETLINK_ROUTE = 0
RTM_NEWROUTE = 24
RTM_GETROUTE = 26
NLM_F_REQUEST = 1
RTA_DST = 1
RTA_OIF = 4
_MESSAGE = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")


def interface_to(peer: str) -> str | None:
    """Return the interface on the route to an IPv4 address; None without a route."""
    request = _request(socket.inet_aton(peer))
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
    kernel.send(request)
    reply = kernel.recv(8192)
    kernel.close()
    index = _output_interface(reply)
    return None if index is None else socket.if_indextoname(index)


def _request(address: bytes) -> bytes:
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(address), RTA_DST) + address
    route = _ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0)
    length = _MESSAGE.size + len(route) + len(attribute)
    return _MESSAGE.pack(length, RTM_GETROUTE, NLM_F_REQUEST, 1, 0) + route + attribute


def _output_interface(reply: bytes) -> int | None:
    length, kind, *_ = _MESSAGE.unpack_from(reply)
    if kind != RTM_NEWROUTE:
        return None
    offset = _MESSAGE.size + _ROUTE.size
    while offset + _ATTRIBUTE.size <= length:
        size, attribute = _ATTRIBUTE.unpack_from(reply, offset)
        if attribute == RTA_OIF:
            return int(struct.unpack_from("=I", reply, offset + _ATTRIBUTE.size)[0])
        offset += (size + 3) & ~3
    return None
