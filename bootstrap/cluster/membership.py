"""Define the membership and assign node indexes. The functions are pure; bootstrap.cluster.table stores the result."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from bootstrap.cluster.record_validation import MAX_GENERATION, MAX_NODES
from bootstrap.cluster.records import MemberRecord
from bootstrap.contract import (
    FIRST_WORKER_INDEX,
    MASTER,
    MASTER_INDEX,
    MOUNT_FIELD,
    RELEASE_FIELD,
    SETUP_FAILED,
    SETUP_FIELD,
    NodeType,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A running instance with a known host key, which can be a member."""

    instance_id: str
    address: str
    node_type: NodeType
    host_key: str
    ssh_key: str = ""
    """Public half of the cluster's key; empty on a worker."""
    draining: bool = False
    """True if the node is in standby or about to be terminated: the hosts and workers files omit it, but it keeps its
    index."""
    mount: str = ""
    """State of the shared directory; empty without shared storage."""
    setup: str = ""
    """Outcome of the setup (contract.SETUP_FIELD); empty without one."""
    release: str = field(default="", compare=False)
    """Release that the node runs (contract.RELEASE_FIELD); empty if unknown. A changed release creates no new
    membership, which every node would read; the next change includes it."""

    @property
    def has_failed_setup(self) -> bool:
        """Return True if the user's setup has failed; the node gets an index, so that it is visible, but no jobs."""
        return self.setup.startswith(SETUP_FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Member(Node):
    """A node with its index."""

    node_index: int

    @classmethod
    def of(cls, record: MemberRecord) -> "Member":
        """Convert a checked record."""
        return cls(**asdict(record))

    @property
    def node(self) -> Node:
        """Return the node without its index."""
        return Node(**{field.name: getattr(self, field.name) for field in fields(Node)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """Members of the cluster, as the coordinator last saw them."""

    generation: int
    """Number that grows with every change of the membership, until it wraps around at MAX_GENERATION. Readers compare
    it only for equality, because a forged record may have had any number. The coordinator concludes from a smaller
    number that the table lost the newer record. After a wrap that is wrong, and costs one extra write."""
    desired_nodes: int
    """Sum of the Auto Scaling groups' DesiredCapacity, the master included."""
    members: tuple[Member, ...]
    """Members in index order."""
    shared_storage: str = ""
    """File system to mount on every node; empty while there is none."""
    master_trains: bool = True
    """True if jobs also run on the master."""
    team_keys: str = ""
    """The team's SSH keys (contract.TEAM_KEYS_FIELD)."""

    @property
    def training_members(self) -> tuple[Member, ...]:
        """Return the members on which jobs run; the workers file lists these."""
        return tuple(member for member in self.active_members if self.master_trains or member.node_type != MASTER)

    @property
    def active_members(self) -> tuple[Member, ...]:
        """Return the members that are not draining; the hosts file lists these."""
        return tuple(member for member in self.members if not member.draining)

    def has_at_least(self, min_nodes: int | None) -> bool:
        """Return True if at least ``min_nodes`` members are present; None means all desired nodes."""
        return len(self.active_members) >= (self.desired_nodes if min_nodes is None else min_nodes)

    @property
    def master(self) -> Member | None:
        """Return the master; None if it is absent or draining."""
        return next((member for member in self.active_members if member.node_type == MASTER), None)

    def member(self, instance_id: str) -> Member | None:
        """Return the member with this instance ID; None if there is none."""
        return next((member for member in self.members if member.instance_id == instance_id), None)

    def is_active(self, instance_id: str) -> bool:
        """Return True if the instance is an active member."""
        return any(member.instance_id == instance_id for member in self.active_members)


NO_MEMBERSHIP = Membership(generation=0, desired_nodes=0, members=())
"""Membership before the first reconciliation."""


def membership_after(
    current: Membership,
    *,
    desired_nodes: int,
    nodes: Sequence[Node],
    departed: Collection[str],
    shared_storage: str = "",
    master_trains: bool = True,
    team_keys: str = "",
) -> Membership:
    """Return the next membership, or ``current`` itself if nothing changes."""
    desired_nodes = min(desired_nodes, MAX_NODES)
    members = assign_node_indexes(current.members, desired_nodes=desired_nodes, nodes=nodes, departed=departed)
    updated = replace(
        current,
        desired_nodes=desired_nodes,
        members=members,
        shared_storage=shared_storage or current.shared_storage,
        master_trains=master_trains,
        team_keys=team_keys,
    )
    if updated == current and current.generation > 0:
        return current
    return replace(updated, generation=generation_after(current.generation))


def generation_after(generation: int, *, step: int = 1) -> int:
    """Return the next generation, which may wrap around; see Membership.generation."""
    return generation + step if generation + step <= MAX_GENERATION else step


def assign_node_indexes(
    members: Iterable[Member], *, desired_nodes: int, nodes: Sequence[Node], departed: Collection[str]
) -> tuple[Member, ...]:
    """Keep the present members, free the indexes of departed ones, and give newcomers the lowest free indexes.

    Index 1 is reserved for the master; a second master waits until the first is gone. The highest index is
    ``desired_nodes``, so a replacement that arrives before its predecessor is gone waits for that index.
    """
    known = {node.instance_id: node for node in nodes}
    refreshed = [
        _refreshed(member, known.get(member.instance_id)) for member in members if member.instance_id not in departed
    ]
    kept = [member for member in refreshed if (member.node_index == MASTER_INDEX) == (member.node_type == MASTER)]
    by_index = {member.node_index: member for member in _close_gaps(kept, desired_nodes=desired_nodes)}
    placed = {member.instance_id for member in by_index.values()}
    newcomers = sorted(
        (node for node in nodes if _may_join(node) and node.instance_id not in placed | set(departed)),
        key=lambda node: node.instance_id,
    )
    for node in newcomers:
        node_index = _lowest_free(by_index, node.node_type, desired_nodes=desired_nodes)
        if node_index is not None:
            by_index[node_index] = Member(node_index=node_index, **asdict(node))
    return tuple(by_index[node_index] for node_index in sorted(by_index))


def _may_join(node: Node) -> bool:
    return not node.draining or node.has_failed_setup


def _close_gaps(members: Sequence[Member], *, desired_nodes: int) -> Iterator[Member]:
    """Move the highest survivors of a shrink to the lowest free indexes.

    All move together when the last leaving node is gone, so that ranks change only once.
    """
    workers = [member for member in members if member.node_index >= FIRST_WORKER_INDEX]
    # Index 1 stays free for a master that is absent now.
    may_renumber = len(workers) < desired_nodes and not any(member.draining for member in members)
    free = iter(sorted(set(range(FIRST_WORKER_INDEX, desired_nodes + 1)) - {member.node_index for member in members}))
    for member in members:
        yield replace(member, node_index=next(free)) if may_renumber and member.node_index > desired_nodes else member


def _refreshed(member: Member, node: Node | None) -> Member:
    """Return the member with the node's current values; unchanged without a node."""
    if node is None:
        return member
    return Member(node_index=member.node_index, **asdict(node))


def _lowest_free(by_index: Collection[int], node_type: NodeType, *, desired_nodes: int) -> int | None:
    candidates = (MASTER_INDEX,) if node_type == MASTER else range(FIRST_WORKER_INDEX, desired_nodes + 1)
    return next((node_index for node_index in candidates if node_index not in by_index), None)


def members_to_json(members: Iterable[Member]) -> str:
    """Render the members as JSON, as the table stores them."""
    return json.dumps([member_row(member) for member in members], separators=(",", ":"))


def member_row(member: Member) -> dict[str, object]:
    """Return a member as records and the state file store it, without empty fields."""
    row = asdict(member)
    for name in (MOUNT_FIELD, SETUP_FIELD, RELEASE_FIELD):
        if not row[name]:
            del row[name]
    return row
