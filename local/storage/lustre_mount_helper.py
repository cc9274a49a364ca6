#!/usr/bin/python3
"""Stand in for Lustre on a node: ``mount.lustre HOST@tcp:/NAME DIRECTORY -o OPTIONS``, called by mount(8).

The kernel of the local AWS has no Lustre client. Like the client, this connects to the file system's servers and lets
them connect back, fails in the words of Lustre's own mount helper (lustre/utils/mount_lustre.c), and then mounts the
file system's directory, which the data plane put on the node's disk. It runs on the node and uses only the standard
library.
"""

import contextlib
import errno
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

EXPORTS = "/var/lib/local-aws/file-systems"
"""Directory of all file systems, on every node; only root may read it."""
PORT = 988
"""Port of LNet, Lustre's network, on servers and clients."""
FURTHER_PORTS = range(1018, 1024)
"""Further ports that must be open between servers and clients ("File system access control with Amazon VPC", FSx for
Lustre User Guide)."""
TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
"""Limit in seconds for the server's answer, which includes its connection to this node."""
PAUSE_S = 0.1
"""Seconds between attempts to take the port, which Lustre's client shares among all mounts of a node."""
SOURCE = re.compile(r"([^@:/,]+)@tcp:/([A-Za-z0-9_-]{1,8})")
OPTIONS = {"rw", "ro", "noatime", "relatime", "flock", "localflock", "noflock", "nosuid", "nodev", "noexec", "_netdev"}
"""Options that mounts of Lustre may have here."""


class MountError(Exception):
    """The mount failed with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


def main(arguments: list[str]) -> int:
    """Mount a file system, or print why not; return the error number, like Lustre's mount helper."""
    source, directory, *rest = [argument for argument in arguments if argument not in ("-o", "-n", "-s", "-v")]
    options = set(",".join(rest).split(",")) - {""}
    try:
        host, name = parse_source(source)
        address = socket.gethostbyname(host)
    except (ValueError, OSError):
        print(f"mount.lustre: Can't parse NID '{source}'", file=sys.stderr)
        return errno.EINVAL
    try:
        if options - OPTIONS:
            raise MountError(errno.EINVAL)
        exported = Path(EXPORTS, ask(address, name))
    except MountError as error:
        print(f"mount.lustre: mount {source} at {directory} failed: {error}", *hints(error.number, name), sep="\n",
              file=sys.stderr)  # fmt: skip
        return error.number
    subprocess.run(["mount", "-i", "-n", "--bind", str(exported), directory], check=True)
    safe = sorted(options & {"ro", "nosuid", "nodev", "noexec"})
    subprocess.run(["mount", "-i", "-n", "-o", ",".join(["remount", "bind", *safe]), directory], check=True)
    return 0


def parse_source(source: str) -> tuple[str, str]:
    """Return the host and the file system's name. Raises ValueError."""
    match = SOURCE.fullmatch(source)
    if match is None:
        raise ValueError(source)
    return match[1], match[2]


def hints(number: int, name: str) -> tuple[str, ...]:
    """Return what Lustre's mount helper prints below an error."""
    if number == errno.ENOENT:
        upgrade = "If upgrading, is the copied client log valid? (see upgrade docs)"
        return ("Is the MGS specification correct?", "Is the filesystem name correct?", upgrade)
    if number == errno.EIO:
        return ("Is the MGS running?",)
    if number == errno.EINVAL:
        correct = f"Is '{name}' the correct filesystem name?"
        return ("This may have multiple causes.", correct, "Are the mount options correct?")
    return ()


def ask(address: str, name: str) -> str:
    """Return the ID of the file system of that name at an address. Raises MountError."""
    try:
        with acceptor(), socket.create_connection((address, PORT), TIMEOUT_S) as server:
            for port in FURTHER_PORTS:
                socket.create_connection((address, port), TIMEOUT_S).close()
            server.settimeout(ANSWER_TIMEOUT_S)
            server.sendall(f"{name}\n".encode())
            answer = server.makefile().readline().strip()
    except TimeoutError:
        raise MountError(errno.ETIMEDOUT) from None
    except OSError:
        raise MountError(errno.EIO) from None
    if not answer.startswith("fs-"):
        raise MountError(errno.ENOENT if answer == "no such name" else errno.EIO)
    return answer


@contextlib.contextmanager
def acceptor() -> Iterator[None]:
    """Let servers connect to this node, once no other mount needs the port any longer. Raises OSError."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            server = socket.create_server(("", PORT))
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
    with server:
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
