"""Publish this node's own record in the cluster's table: its keys, its idle report, and whether it is draining."""

from collections.abc import Callable
from typing import Final, Protocol

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Table

RETRY_S: Final = 60.0
"""Seconds between writes of the same record while the membership does not include it."""


class Report(Protocol):
    """The node's idle report (bootstrap.idle.report), which is not part of the membership."""

    @property
    def is_due(self) -> bool:
        """Return True if the report must be written now."""

    def text(self) -> str:
        """Return the report to write; empty for none."""

    def mark_written(self) -> None:
        """Note that the report has been written."""


class NodeRecordWriter:
    """Writes the node's record whenever the cluster lacks it."""

    def __init__(self, *, report: Report, monotonic: Callable[[], float]) -> None:
        self._report = report
        self._monotonic = monotonic
        self._published: NodeRecord | None = None
        self._not_before = 0.0

    def is_due(self, record: NodeRecord, membership: Membership) -> bool:
        """Return True if the record is new, the membership differs from it, or the idle report is due.

        The table may have lost the record, or another process with this node's role may have replaced it.
        """
        if record != self._published or self._report.is_due:
            return True
        return not _agrees(record, membership) and self._monotonic() >= self._not_before

    def publish(self, table: Table, record: NodeRecord) -> None:
        """Write the record, with the idle report beside it."""
        now = self._monotonic()
        table.write_node(record, idle_report=self._report.text())
        self._report.mark_written()
        self._published = record
        self._not_before = now + RETRY_S


def _agrees(record: NodeRecord, membership: Membership) -> bool:
    """Return True if the membership matches the record.

    Ignore the release, which a master of an earlier version does not write.
    """
    member = membership.member(record.instance_id)
    if member is None:
        return False
    published = (record.host_key, record.ssh_key, record.draining, record.mount, record.setup)
    return (member.host_key, member.ssh_key, member.draining, member.mount, member.setup) == published
