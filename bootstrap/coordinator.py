"""The master's part: turns what AWS says into the membership that every node reads.

One node asks AWS for all, so the calls do not grow with the cluster. Two coordinators (a master
and its replacement) do no harm: the write is conditional, and the loser looks again.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bootstrap.config import NodeConfig
from bootstrap.contract import NodeType, node_record_id
from bootstrap.discovery import Instance, describe_groups, describe_instances
from bootstrap.membership import Membership, Node, next_membership
from bootstrap.table import Table

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)


class Coordinator:
    """One look at the cluster at a time; remembers only what EC2 said last."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        table: Table,
        autoscaling: "AutoScalingClient",
        ec2: "EC2Client",
    ) -> None:
        self._config = config
        self._table = table
        self._autoscaling = autoscaling
        self._ec2 = ec2
        self._instances: dict[str, Instance] = {}
        self._asked: tuple[frozenset[str], frozenset[str]] | None = None

    def reconcile(self, current: Membership) -> Membership:
        """Bring the membership up to date and return it."""
        groups = describe_groups(self._autoscaling, cluster_name=self._config.cluster_name)
        types = {instance_id: group.node_type for group in groups for instance_id in group.instance_ids}
        instances = self._describe(types, current)
        wanted = next_membership(
            current,
            expected=sum(group.desired for group in groups),
            nodes=self._nodes(types, instances),
            gone={
                member.instance_id
                for member in current.members
                if member.instance_id not in types and _gone(instances, member.instance_id)
            },
        )
        if wanted is current:
            return current
        if not self._table.replace_membership(current, wanted):
            log.info("another coordinator was faster than generation %d", wanted.generation)
            return self._table.read_membership(consistent=True)
        log.info("generation %d: %d of %d nodes", wanted.generation, len(wanted.members), wanted.expected)
        return wanted

    def _describe(self, types: Mapping[str, NodeType], current: Membership) -> dict[str, Instance]:
        """Ask EC2 only when the answer can differ from the last one."""
        grouped = frozenset(types)
        members = frozenset(member.instance_id for member in current.members)
        settled = all(
            instance_id in self._instances and self._instances[instance_id].reachable for instance_id in grouped
        ) and all(_gone(self._instances, instance_id) for instance_id in members - grouped)
        if (grouped, members) != self._asked or not settled:
            self._instances = describe_instances(self._ec2, grouped | members)
            self._asked = (grouped, members)
        return self._instances

    def _nodes(self, types: Mapping[str, NodeType], instances: Mapping[str, Instance]) -> list[Node]:
        ids = {
            node_record_id(self._config.role_id(node_type), instance_id): instance_id
            for instance_id, node_type in types.items()
        }
        records = self._table.read_nodes(sorted(ids))
        nodes = []
        for record_id, record in records.items():
            instance = instances.get(ids[record_id])
            if instance is not None and instance.reachable and instance.address is not None:
                nodes.append(
                    Node(
                        instance_id=instance.instance_id,
                        address=instance.address,
                        node_type=types[instance.instance_id],
                        host_key=record.host_key,
                    )
                )
        return nodes


def _gone(instances: Mapping[str, Instance], instance_id: str) -> bool:
    return instance_id not in instances or instances[instance_id].gone
