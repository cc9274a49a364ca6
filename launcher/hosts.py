"""The hosts file, and where its names lead."""

import socket
from collections import Counter
from pathlib import Path

from launcher.errors import LaunchError, UsageError


def parse_hosts(text: str, *, source: str) -> tuple[str, ...]:
    """Host names in order, one a line; blank lines and ``#`` comments do not count."""
    hosts = tuple(name for line in text.splitlines() if (name := line.partition("#")[0].strip()))
    if not hosts:
        raise UsageError(f"{source} names no host")
    for host in hosts:
        # A name that starts with a dash would be an option of ssh.
        if len(host.split()) > 1 or host.startswith("-"):
            raise UsageError(f"{source} must hold one host name a line, got {host!r}")
    twice = [host for host, count in Counter(hosts).items() if count > 1]
    if twice:
        raise UsageError(f"{source} must name each host once, got {', '.join(twice)} more than once")
    return hosts


def read_hosts(path: Path) -> tuple[str, ...]:
    """The hosts that the file at `path` names."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UsageError(f"cannot read the hosts file {path}: {reason}") from error
    return parse_hosts(text, source=str(path))


def address_of(host: str) -> str:
    """IPv4 address of a host name, the first that is not loopback when there is one."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for a name that DNS could never hold
        reason = error.strerror if isinstance(error, OSError) else "not a valid host name"
        raise LaunchError(f"{host}: {reason or error}") from error
    addresses = [str(item[4][0]) for item in found]
    return next((address for address in addresses if not is_loopback(address)), addresses[0])


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    return address.startswith("127.")


def is_here(address: str) -> bool:
    """Whether the address is one of this machine's: only then can a socket be bound to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
