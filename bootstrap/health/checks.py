"""Check whether this node is fit to train, before it signals ready and regularly afterwards.

A failed check has ``needs_replacement`` if only a new machine would fix it: a GPU is missing, a disk cannot be written.
Any other failure, such as a peer that does not answer, may pass or be another node's fault; if nodes reported
themselves unhealthy for it, one fault could take down the complete cluster.
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
from bootstrap.contract import MASTER_HOST, MASTER_INDEX, SCRATCH_DIRS, SSH_PORT
from bootstrap.failures import BROKEN_DISK
from bootstrap.files.hosts import host_names
from bootstrap.files.paths import under_root

EFA_DEVICES: Final = "sys/class/infiniband"
"""Directory with one entry for each Elastic Fabric Adapter whose driver is loaded and, on some types, for each
NVSwitch's adapter."""
EFA_DRIVER: Final = "efa"
"""Name of the driver that tells the two apart."""
PROBE_BYTES: Final = 4096
"""Number of bytes that a check writes to a scratch directory and reads back."""
HEALTH_CHECK_INTERVAL_S: Final = 60.0
"""Seconds between health checks of a ready node."""
FAILURES_BEFORE_REPLACEMENT: Final = 3
"""Number of consecutive health checks that must find this machine broken before the node requests its replacement."""
ANSWER_TIMEOUT_S: Final = 3.0
"""Seconds within which an SSH server must answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthCheckFailure:
    """A failed check."""

    reason: str
    """Short name of what is wrong, which fits into the signal's only field."""
    needs_replacement: bool
    """True if only a new machine would fix it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthChecks:
    """The checks of one node."""

    root: Path
    expected_gpus: int | None
    """Number of GPUs of the instance type; None if unknown."""
    count_gpus: Callable[[], int | None]
    """Function that returns the number of GPUs of this node; None while unknown."""
    expected_efa: int = 0
    """Number of Elastic Fabric Adapters with which the node was launched."""
    resolve: Callable[[str], str]
    """Function that returns the address of a host name. Raises OSError."""
    answers_ssh: Callable[[str], bool]
    """Function that returns True if an SSH server answers at an address; see the function of this name."""

    def check_machine(self) -> HealthCheckFailure | None:
        """Check the GPUs, the fabric and the disks; return the first failure, or None."""
        return self._check_gpus() or self._check_efa() or self._check_scratch()

    def check_before_ready(self, active_members: Iterable[Member]) -> HealthCheckFailure | None:
        """Return the first failure that keeps this node from training, or None."""
        members = tuple(active_members)
        return self.check_machine() or self._check_names(members) or self._check_master(members)

    def _check_gpus(self) -> HealthCheckFailure | None:
        if self.expected_gpus is None:
            return None
        count = self.count_gpus()
        if count == self.expected_gpus:
            return None
        # If the driver does not answer, replacements would fail too, for example after an update that needs a reboot.
        shown = "?" if count is None else count
        return HealthCheckFailure(reason=f"gpus {shown}/{self.expected_gpus}", needs_replacement=count is not None)

    def _check_efa(self) -> HealthCheckFailure | None:
        devices = self.root / EFA_DEVICES
        is_needed = self.expected_efa and devices.is_dir()
        count = sum(_read_driver(device) == EFA_DRIVER for device in devices.iterdir()) if is_needed else 0
        if count >= self.expected_efa:
            return None
        # If there is none at all, the driver is missing, and every replacement would lack it too.
        return HealthCheckFailure(reason=f"efa {count}/{self.expected_efa}", needs_replacement=count > 0)

    def _check_scratch(self) -> HealthCheckFailure | None:
        for path in SCRATCH_DIRS:
            directory = under_root(self.root, path)
            if not directory.is_dir():
                continue
            try:
                _write_and_read(directory)
            except OSError as error:
                name = errno.errorcode.get(error.errno or 0, "failed")
                return HealthCheckFailure(reason=f"scratch {path} {name}", needs_replacement=error.errno in BROKEN_DISK)
        return None

    def _check_names(self, members: Iterable[Member]) -> HealthCheckFailure | None:
        for member in members:
            for name in host_names(member.node_index):
                if self._resolved(name) != member.address:
                    return HealthCheckFailure(reason=f"name {name}", needs_replacement=False)
        return None

    def _resolved(self, name: str) -> str | None:
        try:
            return self.resolve(name)
        except OSError:
            return None

    def _check_master(self, members: Iterable[Member]) -> HealthCheckFailure | None:
        for member in members:
            if member.node_index == MASTER_INDEX and not self.answers_ssh(member.address):
                return HealthCheckFailure(reason=f"{MASTER_HOST} silent", needs_replacement=False)
        return None


def _read_driver(device: Path) -> str | None:
    try:
        return (device / "device/driver").readlink().name
    except OSError:
        return None


def _write_and_read(directory: Path) -> None:
    content = os.urandom(PROBE_BYTES)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        if file.read() != content:
            raise OSError(errno.EIO, "content read back differs from what was written")


def answers_ssh(address: str) -> bool:
    """Return True if an SSH server answers at the address."""
    try:
        with socket.create_connection((address, SSH_PORT), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
