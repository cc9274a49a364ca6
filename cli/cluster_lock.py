"""Allow only one ``dlcluster up`` or ``bake`` at a time, because two would terminate each other's nodes.

The lock is a conditional write to a record in the cluster's table: if two runs start together, one write succeeds. A
run whose record was replaced or deleted notices this before it next launches, moves or terminates nodes.
"""

import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bootstrap.contract import TABLE_KEY
from cli.aws.clients import Clients
from cli.aws.clusters import find_cluster
from cli.errors import ClusterError

UP_ID: Final = "up"
"""Key of the record of the ``dlcluster up`` at work on the cluster. No node's role may access it."""
BAKE_ID: Final = "bake"
"""Key of the record of the ``dlcluster bake`` at work on the cluster. No node's role may access it."""
LEASE_S: Final = 1200.0
"""Seconds without a renewal after which the holder counts as dead: longer than the longest wait between renewals
(zone_search.MAX_BACKOFF_S), plus clock skew."""
ATTEMPTS: Final = 5
"""Largest number of write attempts. One fails if another run wrote first, or if the reply to our own was lost."""
_UNCHANGED: Final = "attribute_not_exists(#revision) OR #revision = :read"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
PROCESS_NAMESPACE: Final = Path("/proc/self/ns/pid")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9+=._:/@-]")


class LockHeldError(ClusterError):
    """Another run of the command is working on the cluster, so its nodes are not ours to terminate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LockRecord:
    """The record of the lock and its holder; one that cannot be read stands for a holder that died long ago."""

    holder_id: str
    """Random text of each run."""
    user: str
    host: str
    pid: int
    boot: str
    """Boot ID and PID namespace in which ``pid`` is valid; empty if unavailable."""
    renewed_at: int
    """Seconds since the epoch when the holder last renewed the lock."""
    lease_expires_at: int
    """Seconds since the epoch from which the holder counts as dead."""
    revision: str
    """Random text of each write."""

    @property
    def is_dead(self) -> bool:
        """Return True if the holder was killed: its process of this boot is gone, or it has been silent for long."""
        if time.time() > self.lease_expires_at:
            return True
        if not self.boot or self.boot != _boot():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return False


@dataclass(kw_only=True, slots=True)
class Lock:
    """The right to change a cluster's groups; once lost to another run, it does not come back."""

    clients: Clients
    name: str
    caller: str
    """ARN of the user."""
    pid: int = field(default_factory=os.getpid)
    command: str = UP_ID
    """Command that holds the lock; also the record's key."""
    _holder_id: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _was_holder: bool = field(default=False, init=False)
    _table_name: str = field(default="", init=False)

    def acquire_or_renew(self) -> None:
        """Acquire the lock, or renew it. Raises LockHeldError if another run holds it, or has taken it since."""
        table = self._table()
        for _ in range(ATTEMPTS):
            record = self._read(table)
            is_own = record is not None and record.holder_id == self._holder_id
            if record is not None and not is_own and not record.is_dead:
                since = f"{datetime.fromtimestamp(record.renewed_at).astimezone():%H:%M}"
                raise LockHeldError(
                    f"{record.user} is running dlcluster {self.command} for {self.name} on {record.host}, last seen "
                    f"at {since}: wait until it ends, or {LEASE_S / 60:.0f} minutes after it was killed"
                )
            if self._was_holder and not is_own:
                command = f"dlcluster {self.command}"
                raise LockHeldError(
                    f"another {command} for {self.name} has taken over: run {command} again to continue"
                )
            self._was_holder = is_own
            if self._write(table, record):
                return
        began = f"others have started dlcluster {self.command} for {self.name} {ATTEMPTS} times within a second"
        raise LockHeldError(f"{began}: try again")

    def is_held(self) -> bool:
        """Return True if no other run has become the holder since."""
        record = self._read(self._table())
        return record is not None and record.holder_id == self._holder_id

    def release(self) -> None:
        """Let other runs start; if AWS cannot be reached, they wait until this holder counts as dead."""
        with suppress(Exception):
            table = self._table()
            record = self._read(table)
            if record is not None and record.holder_id == self._holder_id:
                key = {TABLE_KEY: {"S": self.command}}
                self.clients.dynamodb.delete_item(TableName=table, Key=key, **_if_unchanged(record))

    def _table(self) -> str:
        clients = self.clients
        if not self._table_name:
            cluster = find_cluster(clients.cloudformation, name=self.name, region=clients.region)
            self._table_name = cluster.table
        return self._table_name

    def _read(self, table: str) -> _LockRecord | None:
        """Return the record; None if there is none."""
        key = {TABLE_KEY: {"S": self.command}}
        item = self.clients.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return _parse_record(item) if item else None

    def _write(self, table: str, read: _LockRecord | None) -> bool:
        """Make this process the holder; return True if the record was still as it was read."""
        now = int(time.time())
        # The keys stay as other releases know them.
        item = {
            TABLE_KEY: {"S": self.command},
            "owner": {"S": self._holder_id},
            "user": {"S": _NOT_ALLOWED.sub("-", self.caller)[-170:]},
            "host": {"S": _host()},
            "process": {"N": str(self.pid)},
            "boot": {"S": _boot()},
            "seen": {"N": str(now)},
            "expires": {"N": f"{now + LEASE_S:.0f}"},
            "revision": {"S": secrets.token_hex(8)},
        }
        dynamodb, was_holder = self.clients.dynamodb, self._was_holder
        self._was_holder = True  # even if the answer is lost
        try:
            dynamodb.put_item(TableName=table, Item=item, **_if_unchanged(read))
        except dynamodb.exceptions.ConditionalCheckFailedException:
            self._was_holder = was_holder
            return False
        return True


def _parse_record(item: Mapping[str, Any]) -> _LockRecord:
    def text(name: str) -> str:
        return str(item.get(name, {}).get("S", ""))

    def number(name: str) -> int:
        digits = str(item.get(name, {}).get("N", ""))
        return int(digits) if re.fullmatch(r"[0-9]{1,10}", digits) else 0

    return _LockRecord(
        holder_id=text("owner"),
        user=text("user"),
        host=text("host"),
        pid=number("process"),
        boot=text("boot"),
        renewed_at=number("seen"),
        lease_expires_at=number("expires"),
        revision=text("revision"),
    )


def _if_unchanged(read: _LockRecord | None) -> dict[str, Any]:
    """Return the condition of a write: nobody has written the record since it was read."""
    return {
        "ConditionExpression": _UNCHANGED,
        "ExpressionAttributeNames": {"#revision": "revision"},
        "ExpressionAttributeValues": {":read": {"S": read.revision if read else ""}},
    }


def _host() -> str:
    return _NOT_ALLOWED.sub("-", socket.gethostname())[:40] or "-"


def _boot() -> str:
    """Return what makes a process ID unique: boot ID and PID namespace; empty if unavailable.

    Hostnames do not: two machines may share one, as containers share a boot, and macOS changes its own.
    """
    try:
        return f"{BOOT_ID.read_text().strip()}/{PROCESS_NAMESPACE.readlink()}"
    except OSError:
        return ""
