"""Publish this node's own record in the cluster's table: its keys, and whether it drains."""

from collections.abc import Callable
from typing import Final

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Table

RETRY_S: Final = 60.0
"""Seconds between writes of the same record while the membership does not contain it."""


class NodeRecordWriter:
    """Writes the record when it is new to the cluster."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._published: NodeRecord | None = None
        self._not_before = 0.0

    def is_due(self, record: NodeRecord, membership: Membership) -> bool:
        """Return True if the record is new, or the membership differs from it.

        The table may have lost the record, or another process with this node's role may have replaced it.
        """
        if record != self._published:
            return True
        return not _agrees(record, membership) and self._monotonic() >= self._not_before

    def publish(self, table: Table, record: NodeRecord) -> None:
        """Write the record."""
        now = self._monotonic()
        table.write_node(record)
        self._published = record
        self._not_before = now + RETRY_S


def _agrees(record: NodeRecord, membership: Membership) -> bool:
    """Return True if the membership has what the record says, except the release: an earlier master leaves it out."""
    member = membership.member(record.instance_id)
    if member is None:
        return False
    published = (record.host_key, record.ssh_key, record.draining, record.mount, record.setup)
    return (member.host_key, member.ssh_key, member.draining, member.mount, member.setup) == published
