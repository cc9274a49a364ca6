"""A node's own record in the cluster's table: who it is, and by which keys the others know it."""

from typing import Final

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.records import NodeRecord
from bootstrap.config import NodeConfig
from bootstrap.contract import MASTER, node_record_id
from bootstrap.files.node_files import user_access
from bootstrap.files.ssh_keys import cluster_key, forget_cluster_key, read_host_key
from bootstrap.host_services import ClusterClients, HostServices

AGAIN_S: Final = 60.0


class NodeRecordWriter:
    """Writes the record when it says something new."""

    def __init__(self, config: NodeConfig, host: HostServices) -> None:
        self._config = config
        self._host = host
        self._published: NodeRecord | None = None
        self._next = 0.0

    def read(self, cluster: ClusterClients, *, draining: bool) -> NodeRecord:
        """Build the node's record from this machine's current state."""
        instance_id = cluster.identity.instance_id
        return NodeRecord(
            record_id=node_record_id(self._config.role_id(self._config.node_type), instance_id),
            instance_id=instance_id,
            node_type=self._config.node_type,
            host_key=read_host_key(self._host.root),
            ssh_key=self._cluster_key(instance_id),
            draining=draining,
        )

    def is_due(self, record: NodeRecord, membership: Membership) -> bool:
        """Return whether to write the record: it is new, or the membership says something else of this node.

        The table may have lost the record, or another process with this node's role may have replaced it.
        """
        if record != self._published:
            return True
        return not self._is_known(record, membership) and self._host.monotonic() >= self._next

    @staticmethod
    def _is_known(record: NodeRecord, membership: Membership) -> bool:
        member = membership.member(record.instance_id)
        said = (record.host_key, record.ssh_key, record.draining)
        return member is not None and (member.host_key, member.ssh_key, member.draining) == said

    def publish(self, cluster: ClusterClients, record: NodeRecord) -> None:
        """Say it."""
        now = self._host.monotonic()
        cluster.table.write_node(record)
        self._published = record
        self._next = now + AGAIN_S

    def _cluster_key(self, instance_id: str) -> str:
        root = self._host.root
        if self._config.node_type != MASTER:
            forget_cluster_key(root)
            return ""
        user = user_access(self._config.default_user)
        return cluster_key(root, instance_id=instance_id, user=user, maker=self._host.actions)
