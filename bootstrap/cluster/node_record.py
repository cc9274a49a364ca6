"""Publish this node's own record in the cluster's table: its keys, its idle report, and whether it is draining."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Table
from bootstrap.config import NodeConfig
from bootstrap.contract import MASTER, SETUP_FAILED, node_record_id
from bootstrap.files.node_files import user_permissions
from bootstrap.files.ssh_keys import cluster_key, delete_cluster_key, read_host_key

if TYPE_CHECKING:
    from bootstrap.host import Host

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


def own_record(
    config: NodeConfig, host: "Host", *, instance_id: str, draining: bool, mount: str, setup: str
) -> NodeRecord:
    """Return this node's record, making its keys if it has none.

    Only a master has the cluster's key; on a worker, delete the copy that came with its image. Like a draining node, a
    node whose setup has failed is in neither the hosts nor the workers file.
    """
    return NodeRecord(
        record_id=node_record_id(config.role_id(config.node_type), instance_id),
        instance_id=instance_id,
        node_type=config.node_type,
        host_key=read_host_key(host.root),
        ssh_key=_ensure_cluster_key(config, host, instance_id),
        draining=draining or setup.startswith(SETUP_FAILED),
        mount=mount,
        setup=setup,
        release=host.release,
    )


def _ensure_cluster_key(config: NodeConfig, host: "Host", instance_id: str) -> str:
    if config.node_type != MASTER:
        delete_cluster_key(host.root)
        return ""
    user = user_permissions(config.default_user)
    return cluster_key(host.root, instance_id=instance_id, user=user, maker=host.actions)
