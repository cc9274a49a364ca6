"""Reconcile the membership with AWS, on the master; every other node reads the result from the table.

Only the master describes groups and instances, so the number of these calls does not grow with the cluster. Two
coordinators (a master and its replacement) are harmless: the write is conditional, and the loser reads the table again.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bootstrap.cluster.discovery import Group, Instance, describe_groups
from bootstrap.cluster.ec2_cache import Ec2Cache
from bootstrap.cluster.membership import NO_MEMBERSHIP, Member, Membership, Node, generation_after, membership_after
from bootstrap.cluster.rate_limit import RecordRateLimit
from bootstrap.cluster.record_validation import RecordError, check_address
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Stored, Table
from bootstrap.config import NodeConfig
from bootstrap.contract import MASTER, NodeType, node_record_id
from bootstrap.team_keys.keys import KeyListError, from_tags, parse

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)

RANDOM: Final = random.SystemRandom()
MAX_STEP: Final = 1_000_000
"""Largest step of the generation after a forged record; random, so that the forger cannot have guessed the number."""


class Coordinator:
    """Compares the groups, EC2 and the table at each reconciliation.

    Caches EC2's last answer, and the last membership in case the table loses it.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        instance_id: str,
        table: Table,
        autoscaling: "AutoScalingClient",
        ec2: "EC2Client",
        last_known: Membership = NO_MEMBERSHIP,
        random_step: Callable[[], int] = lambda: RANDOM.randint(1, MAX_STEP),
        monotonic: Callable[[], float] = time.monotonic,
        shared_storage: Callable[[], str] = lambda: "",
    ) -> None:
        self._config = config
        self._instance_id = instance_id
        self._table = table
        self._autoscaling = autoscaling
        self._ec2_cache = Ec2Cache(ec2)
        self._last = last_known
        self._random_step = random_step
        self._shared_storage = shared_storage
        self._rate_limit = RecordRateLimit(monotonic)
        self.arriving: frozenset[str] = frozenset()
        """Instances in the groups that were not members after the last reconciliation."""
        self.groups: Sequence[Group] = ()
        """Both groups at the last reconciliation."""
        self.idle_reports: Mapping[str, str] = {}
        """Idle report in each instance's own record, by instance ID."""

    def reconcile(self, stored: Stored) -> Membership:
        """Update the membership and return it."""
        if stored.error:
            log.warning("replacing the membership record: %s", stored.error)
        self._last = self._reconcile(stored)
        return self._last

    def _reconcile(self, stored: Stored) -> Membership:
        self.groups = groups = describe_groups(self._autoscaling, cluster_name=self._config.cluster_name)
        group_instances = {
            instance_id: _GroupInstance(
                node_type=group.node_type, is_leaving_or_standby=instance_id in group.leaving_or_standby_ids
            )
            for group in groups
            for instance_id in group.active_ids | group.leaving_or_standby_ids
        }
        stored_membership = stored.membership
        previous = self._starting_membership(stored, group_instances)
        team_keys = self._team_keys(known=stored_membership.team_keys or self._last.team_keys)
        instances = self._ec2_cache.describe(
            group_instances=group_instances, members=[member.instance_id for member in previous.members]
        )
        ungrouped_members = [member for member in previous.members if member.instance_id not in group_instances]
        next_membership = membership_after(
            previous,
            desired_nodes=sum(group.desired_capacity for group in groups),
            nodes=[
                *self._nodes_in_networks(group_instances, instances, previous),
                *_ungrouped_nodes(ungrouped_members, instances),
            ],
            departed={instance_id for instance_id, instance in instances.items() if instance.is_terminated}
            | {member.instance_id for member in ungrouped_members if self._ec2_cache.has_left(member.instance_id)},
            shared_storage=self._shared_storage(),
            master_trains=self._config.master_trains,
            team_keys=team_keys,
        )
        self.arriving = frozenset(group_instances.keys() - {member.instance_id for member in next_membership.members})
        if stored.error is None and _is_unchanged(next_membership, stored_membership):
            return stored_membership
        if stored.error or previous is not stored_membership:
            # A node may have read a forged record with any generation, so the new number must differ from that one.
            next_membership = replace(next_membership, generation=self._generation_after(stored_membership, previous))
        if not self._table.replace_membership(stored, next_membership):
            log.info("generation %d not written: another coordinator was faster", next_membership.generation)
            return self._after_lost_race(group_instances, team_keys=team_keys)
        log.info(
            "generation %d: %d of %d nodes",
            next_membership.generation,
            len(next_membership.active_members),
            next_membership.desired_nodes,
        )
        return next_membership

    def _team_keys(self, *, known: str) -> str:
        """Return the keys in the tags of the master's group; while the tags are bad, the keys in the membership."""
        tags = next(group.tags for group in self.groups if group.node_type == MASTER)
        try:
            tagged = from_tags(tags)
        except KeyListError as error:
            log.warning("keeping the team's SSH keys: %s", error)
            return known
        if tagged != known:
            log.info("SSH keys of the team: %s", ", ".join(key.name for key in parse(tagged)) or "none")
        return tagged

    def _starting_membership(self, stored: Stored, group_instances: "Mapping[str, _GroupInstance]") -> Membership:
        """Return the membership to start from, which keeps node indexes even if the table was emptied or forged."""
        current = stored.membership
        if self._last == NO_MEMBERSHIP or (not stored.error and current == self._last):
            return current
        # Only another master can have changed it. A smaller generation means an older record or, rarely, a wrapped
        # counter.
        if stored.error or self._is_alone(group_instances) or current.generation < self._last.generation:
            return self._last
        return current

    def _is_alone(self, group_instances: "Mapping[str, _GroupInstance]") -> bool:
        masters = [
            instance_id for instance_id, group_instance in group_instances.items() if group_instance.node_type == MASTER
        ]
        return masters == [self._instance_id]

    def _generation_after(self, *memberships: Membership) -> int:
        newest = max(membership.generation for membership in memberships)
        return generation_after(newest, step=self._random_step())

    def _after_lost_race(self, group_instances: "Mapping[str, _GroupInstance]", *, team_keys: str) -> Membership:
        """Return the membership after another process has written to the table."""
        stored = self._table.read_stored()
        if stored.error is not None and self._last == NO_MEMBERSHIP:
            return NO_MEMBERSHIP
        membership = self._starting_membership(stored, group_instances)
        # The last membership came from the node's state file, which contains no keys.
        return membership if membership == NO_MEMBERSHIP else replace(membership, team_keys=team_keys)

    def _nodes_in_networks(
        self, group_instances: "Mapping[str, _GroupInstance]", instances: Mapping[str, Instance], previous: Membership
    ) -> Iterator[Node]:
        """Yield the candidates whose addresses are in the cluster's networks; log and skip the others."""
        for node in _candidates(group_instances, instances, self._read_records(group_instances), previous):
            try:
                check_address(node.address, self._config.cluster_networks)
            except RecordError as error:
                log.warning("ignoring instance %s: %s", node.instance_id, error)
            else:
                yield node

    def _read_records(self, group_instances: Mapping[str, "_GroupInstance"]) -> dict[str, NodeRecord]:
        """Return the nodes' records in force, by instance ID; IAM lets each node write only its own."""
        ids = {
            node_record_id(self._config.role_id(group_instance.node_type), instance_id): instance_id
            for instance_id, group_instance in group_instances.items()
        }
        records = {ids[record_id]: record for record_id, record in self._table.read_nodes(sorted(ids)).items()}
        self.idle_reports = {ids[record_id]: text for record_id, text in self._table.idle_reports.items()}
        return self._rate_limit.apply(records, instances=group_instances)


def _is_unchanged(next_membership: Membership, current: Membership) -> bool:
    """Return True if the table already has the next membership.

    Ignore the generation, which `membership_after` may have counted from an older membership than the table's. Without
    a generation, the table has no membership yet.
    """
    return current.generation > 0 and replace(next_membership, generation=current.generation) == current


@dataclass(frozen=True, kw_only=True, slots=True)
class _GroupInstance:
    """An instance in the description of its Auto Scaling group."""

    node_type: NodeType
    is_leaving_or_standby: bool
    """True if the group no longer counts the instance; see Group.leaving_or_standby_ids."""


def _candidates(
    group_instances: Mapping[str, _GroupInstance],
    instances: Mapping[str, Instance],
    records: Mapping[str, NodeRecord],
    previous: Membership,
) -> Iterator[Node]:
    """Yield the groups' instances as nodes. A node's own record can only mark it as draining."""
    for instance_id, group_instance in group_instances.items():
        instance, record, member = instances.get(instance_id), records.get(instance_id), previous.member(instance_id)
        draining = group_instance.is_leaving_or_standby or (instance is not None and not instance.can_be_member)
        if record is not None and instance is not None and instance.address is not None:
            yield Node(
                instance_id=instance_id,
                address=instance.address,
                node_type=group_instance.node_type,
                host_key=record.host_key,
                ssh_key=record.ssh_key if group_instance.node_type == MASTER else "",
                draining=draining or record.draining,
                mount=record.mount,
                setup=record.setup,
                release=record.release,
            )
        elif member is not None:
            node = _without_record(member, instances)
            yield replace(node, node_type=group_instance.node_type, draining=node.draining or draining)


def _ungrouped_nodes(ungrouped_members: Iterable[Member], instances: Mapping[str, Instance]) -> Iterator[Node]:
    """Yield members that have no group as draining, unless EC2 shows that the group's answer is out of date."""
    for member in ungrouped_members:
        instance, node = instances.get(member.instance_id), _without_record(member, instances)
        listed = instance is not None and instance.can_be_member and instance.in_group
        yield node if listed else replace(node, draining=True)


def _without_record(member: Member, instances: Mapping[str, Instance]) -> Node:
    """Update a member without a record.

    Use EC2's address. If EC2 knows none, keep the old one, but mark the member as draining if another instance has the
    address now.
    """
    instance = instances.get(member.instance_id)
    if instance is not None and instance.address is not None:
        return replace(member.node, address=instance.address)
    taken = any(
        other.address == member.address for instance_id, other in instances.items() if instance_id != member.instance_id
    )
    return replace(member.node, draining=member.draining or taken)
