"""Resolve host names to addresses that the other nodes can reach."""

import socket
from collections.abc import Sequence

from launcher.errors import LaunchError


def check_reachable(names: Sequence[str], addresses: Sequence[str]) -> None:
    """Raise LaunchError if the job's other nodes cannot reach one of its addresses."""
    nodes = tuple(zip(names, addresses, strict=True))
    other_names = [name for name, address in nodes if not is_loopback(address)]
    for name, address in nodes:
        if other_names and is_loopback(address):
            raise LaunchError(f"{name} is {address} here, which {other_names[0]} cannot reach")


def address_for_peers(name: str, sshd_address: str | None) -> str:
    """Return a node's address: `sshd_address` if known, because the name may be an alias in ssh's configuration."""
    if sshd_address is not None and not is_loopback(sshd_address):
        return sshd_address
    try:
        return resolve_address(name)
    except LaunchError:
        if sshd_address is None:
            raise
        return sshd_address


def resolve_address(host: str) -> str:
    """Return a host name's IPv4 address, preferably an address that is not loopback."""
    try:
        # With a str, Python imports the codec for internationalized names, which is slow.
        results = socket.getaddrinfo(
            host.encode() if host.isascii() else host, None, socket.AF_INET, socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that DNS does not allow
        reason = error.strerror if isinstance(error, OSError) else "not a valid host name"
        raise LaunchError(f"{host}: {reason or error}") from error
    addresses = [str(item[4][0]) for item in results]
    return next((address for address in addresses if not is_loopback(address)), addresses[0])


def own_address_towards(peer: str) -> str:
    """Return this machine's address on the route to `peer`, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 1))
        except OSError as error:
            raise LaunchError(f"{peer}: {error.strerror}") from error
        return str(probe.getsockname()[0])


def is_loopback(address: str) -> bool:
    """Return True if only this machine can reach the address."""
    return address.startswith("127.")


def is_own_address(address: str) -> bool:
    """Return True if the address belongs to this machine; a socket can bind to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
