"""Who is in which slot: the records and the rules, without the table that keeps them."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace

from bootstrap.cluster.record_fields import MOST_NODES
from bootstrap.cluster.records import MOST_GENERATION, MemberRecord
from bootstrap.contract import MASTER, NodeType


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """An instance that can be a member: it runs, and its host key is known."""

    instance_id: str
    address: str
    node_type: NodeType
    host_key: str
    ssh_key: str = ""
    """Public half of the cluster's key, of a master."""
    away: bool = False
    """It is about to end, or stands by: no list has it, yet nobody else gets its slot before it is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member(Node):
    """A node in its slot."""

    slot: int

    @classmethod
    def of(cls, record: MemberRecord) -> "Member":
        """The member that a record says, once the record has been checked."""
        return cls(**asdict(record))

    @property
    def node(self) -> Node:
        """The node without its slot."""
        return Node(**{field.name: getattr(self, field.name) for field in fields(Node)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """The cluster as its coordinator last saw it."""

    generation: int
    """Goes up by one with each change."""
    expected: int
    """Nodes that the Auto Scaling groups are asked for, the master included."""
    members: tuple[Member, ...]
    """In slot order."""

    @property
    def present(self) -> tuple[Member, ...]:
        """The members that the lists name."""
        return tuple(member for member in self.members if not member.away)

    def has(self, count: int | None) -> bool:
        """Whether so many are there; None: everybody who was asked for."""
        return len(self.present) >= (self.expected if count is None else count)

    @property
    def master(self) -> Member | None:
        """Who holds slot 1 and is there."""
        return next((member for member in self.present if member.node_type == MASTER), None)

    def member(self, instance_id: str) -> Member | None:
        """The slot of an instance, if it has one."""
        return next((member for member in self.members if member.instance_id == instance_id), None)

    def lists(self, instance_id: str) -> bool:
        """Whether the lists name the instance."""
        return any(member.instance_id == instance_id for member in self.present)


EMPTY = Membership(generation=0, expected=0, members=())
"""Before the first coordinator pass."""


def next_membership(current: Membership, *, expected: int, nodes: Sequence[Node], gone: Collection[str]) -> Membership:
    """What the membership should be now; the same object when nothing has to change."""
    expected = min(expected, MOST_NODES)
    members = assign_slots(current.members, expected=expected, nodes=nodes, gone=gone)
    wanted = replace(current, expected=expected, members=members)
    if wanted == current and current.generation > 0:
        return current
    return replace(wanted, generation=generation_after(current.generation))


def generation_after(generation: int, *, step: int = 1) -> int:
    """The next generation. Others only ask whether it is another one, so it may begin again."""
    return generation + step if generation + step <= MOST_GENERATION else step


def assign_slots(
    members: Iterable[Member], *, expected: int, nodes: Sequence[Node], gone: Collection[str]
) -> tuple[Member, ...]:
    """Keep who is there, free the slots of who is gone, give newcomers the lowest free slots.

    Slot 1 is the master's alone; a second master waits until the first is gone. The slots end at
    ``expected``: a replacement that comes before its predecessor is gone waits for that slot.
    """
    known = {node.instance_id: node for node in nodes}
    refreshed = [_refreshed(each, known.get(each.instance_id)) for each in members if each.instance_id not in gone]
    kept = [member for member in refreshed if (member.slot == 1) == (member.node_type == MASTER)]
    slots = {member.slot: member for member in _close_gaps(kept, expected=expected)}
    placed = {member.instance_id for member in slots.values()}
    newcomers = sorted(
        (node for node in nodes if not node.away and node.instance_id not in placed | set(gone)),
        key=lambda node: node.instance_id,
    )
    for node in newcomers:
        slot = _lowest_free(slots, node.node_type, expected=expected)
        if slot is not None:
            slots[slot] = Member(slot=slot, **asdict(node))
    return tuple(slots[slot] for slot in sorted(slots))


def _close_gaps(members: Sequence[Member], *, expected: int) -> Iterator[Member]:
    """After a shrink the highest survivors take the lowest free slots: all at once, when the last of those
    that leave is gone, so that ranks move one time only.
    """
    workers = [member for member in members if member.slot > 1]
    # Slot 1 stays free for a master who is not there just now.
    settled = len(workers) < expected and not any(member.away for member in members)
    free = iter(sorted(set(range(2, expected + 1)) - {member.slot for member in members}))
    for member in members:
        yield replace(member, slot=next(free)) if settled and member.slot > expected else member


def _refreshed(member: Member, node: Node | None) -> Member:
    """What the node is now; of one that nobody says anything about, what it was."""
    if node is None:
        return member
    return Member(slot=member.slot, **asdict(node))


def _lowest_free(slots: Collection[int], node_type: NodeType, *, expected: int) -> int | None:
    candidates = (1,) if node_type == MASTER else range(2, expected + 1)
    return next((slot for slot in candidates if slot not in slots), None)


def members_to_json(members: Iterable[Member]) -> str:
    """The list as the table and the node's state file keep it."""
    return json.dumps([asdict(member) for member in members], separators=(",", ":"))
