"""Whether this node is fit to train: asked before it says that it is ready, and again all its life.

Two kinds of findings. A defect is this machine's own (a GPU is missing, a disk cannot be written):
only another machine mends it. Anything else (a peer that does not answer) passes, or is for
somebody else to mend: a node that called itself unhealthy for it would take the cluster down with it.
"""

import errno
import os
import socket
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bootstrap.cluster.membership import Member
from bootstrap.contract import MASTER_HOST, SCRATCH_DIRS, SSH_PORT
from bootstrap.failures import BROKEN_DISK
from bootstrap.files.hosts import host_names
from bootstrap.files.node_files import place

PROBE_BYTES: Final = 4096
HEALTH_S: Final = 60.0
"""Seconds between two health checks of a ready node."""
DEFECTS: Final = 3
"""How many health checks in a row must find this node broken before it asks for its replacement."""
ANSWER_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What is wrong with a node, in a few words for the signal's one field."""

    what: str
    defect: bool
    """Whether the node itself is broken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """The checks of one node."""

    root: Path
    expected_gpus: int | None
    """What the instance type has; None when nobody knows."""
    count_gpus: Callable[[], int | None]
    """None while nobody can say."""
    resolve: Callable[[str], str]
    """Address of a host name, or OSError."""
    answers: Callable[[str], bool]
    """Whether an address has an SSH server; see answers_ssh."""

    def defect(self) -> Finding | None:
        """The first thing that is broken in this machine."""
        return self._gpus() or self._scratch()

    def before_ready(self, present: Iterable[Member]) -> Finding | None:
        """The first reason not to train here yet."""
        members = tuple(present)
        return self.defect() or self._names(members) or self._master(members)

    def _gpus(self) -> Finding | None:
        if self.expected_gpus is None:
            return None
        count = self.count_gpus()
        if count == self.expected_gpus:
            return None
        # A driver that cannot be asked (its update waits for a reboot, say) is no worse on this machine than on others.
        return Finding(what=f"gpus {'?' if count is None else count}/{self.expected_gpus}", defect=count is not None)

    def _scratch(self) -> Finding | None:
        for path in SCRATCH_DIRS:
            directory = place(self.root, path)
            if not directory.is_dir():
                continue
            try:
                _write_and_read(directory)
            except OSError as error:
                name = errno.errorcode.get(error.errno or 0, "failed")
                return Finding(what=f"scratch {path} {name}", defect=error.errno in BROKEN_DISK)
        return None

    def _names(self, members: Iterable[Member]) -> Finding | None:
        for member in members:
            for name in host_names(member.node_index):
                if self._resolved(name) != member.address:
                    return Finding(what=f"name {name}", defect=False)
        return None

    def _resolved(self, name: str) -> str | None:
        try:
            return self.resolve(name)
        except OSError:
            return None

    def _master(self, members: Iterable[Member]) -> Finding | None:
        for member in members:
            if member.node_index == 1 and not self.answers(member.address):
                return Finding(what=f"{MASTER_HOST} silent", defect=False)
        return None


def _write_and_read(directory: Path) -> None:
    content = os.urandom(PROBE_BYTES)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        if file.read() != content:
            raise OSError(errno.EIO, "read back something else")


def answers_ssh(address: str) -> bool:
    """Whether an SSH server introduces itself there."""
    try:
        with socket.create_connection((address, SSH_PORT), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
