"""The master's part: turns what AWS says into the membership that every node reads.

One node asks AWS for all, so the calls do not grow with the cluster. Two coordinators (a master
and its replacement) do no harm: the write is conditional, and the loser looks again.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bootstrap.config import NodeConfig
from bootstrap.contract import NodeType, node_record_id
from bootstrap.discovery import Instance, describe_groups
from bootstrap.membership import EMPTY, Member, Membership, Node, next_membership
from bootstrap.sightings import Sightings
from bootstrap.table import NodeRecord, Table

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)


class Coordinator:
    """One look at the cluster at a time; remembers what EC2 said last, and the membership, should the table lose it."""

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
        self._sightings = Sightings(ec2)
        self._last = EMPTY
        self.arriving: frozenset[str] = frozenset()
        """Instances that the last look found in the groups and not among the members."""

    def reconcile(self, current: Membership) -> Membership:
        """Bring the membership up to date and return it."""
        self._last = self._reconcile(current)
        return self._last

    def _reconcile(self, current: Membership) -> Membership:
        # Somebody emptied the table: slots and the generation go on from what we know.
        base = current if current.generation >= self._last.generation else self._last
        groups = describe_groups(self._autoscaling, cluster_name=self._config.cluster_name)
        grouped = {
            instance_id: _Grouped(node_type=group.node_type, counted=counted)
            for group in groups
            for instance_id, counted in group.instances.items()
        }
        instances = self._sightings.look(grouped=grouped, members=[member.instance_id for member in base.members])
        strays = [member for member in base.members if member.instance_id not in grouped]
        wanted = next_membership(
            base,
            expected=sum(group.desired for group in groups),
            nodes=[*_nodes(grouped, instances, self._records(grouped), base), *_away(strays, instances)],
            gone={name for name, instance in instances.items() if instance.ended}
            | {member.instance_id for member in strays if self._sightings.gone(member.instance_id)},
        )
        self.arriving = frozenset(grouped.keys() - {member.instance_id for member in wanted.members})
        if wanted is current:
            return current
        if wanted is base:
            wanted = replace(base, generation=base.generation + 1)
        if not self._table.replace_membership(current, wanted):
            log.info("another coordinator was faster than generation %d", wanted.generation)
            return self._table.read_membership()
        log.info("generation %d: %d of %d nodes", wanted.generation, len(wanted.present), wanted.expected)
        return wanted

    def _records(self, grouped: Mapping[str, "_Grouped"]) -> dict[str, NodeRecord]:
        """What the nodes say, by instance id, each under the id that only itself can write to."""
        ids = {
            node_record_id(self._config.role_id(each.node_type), instance_id): instance_id
            for instance_id, each in grouped.items()
        }
        return {ids[record_id]: record for record_id, record in self._table.read_nodes(sorted(ids)).items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Grouped:
    """An instance as its group sees it."""

    node_type: NodeType
    counted: bool


def _nodes(
    grouped: Mapping[str, _Grouped],
    instances: Mapping[str, Instance],
    records: Mapping[str, NodeRecord],
    current: Membership,
) -> Iterator[Node]:
    """Who can be a member. AWS decides who is there; a node's own record can only take the node out."""
    for instance_id, group in grouped.items():
        instance, record, member = instances.get(instance_id), records.get(instance_id), current.member(instance_id)
        away = not group.counted or (instance is not None and not instance.reachable)
        if record is not None and instance is not None and instance.address is not None:
            yield Node(
                instance_id=instance_id,
                address=instance.address,
                node_type=group.node_type,
                host_key=record.host_key,
                ssh_key=record.ssh_key,
                away=away or record.away,
            )
        elif member is not None:
            yield replace(member.node, away=away or member.away)


def _away(strays: Iterable[Member], instances: Mapping[str, Instance]) -> Iterator[Node]:
    """Members that no group has any more, unless EC2 says that the group's answer was an old one."""
    for member in strays:
        instance = instances.get(member.instance_id)
        if instance is None or not instance.reachable or not instance.grouped:
            yield replace(member.node, away=True)
