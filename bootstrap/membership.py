"""Who is in which slot: the records and the rules, without the table that keeps them."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from bootstrap.contract import MASTER, WORKER, NodeType
from bootstrap.errors import RecordError


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """An instance that can be a member: it runs, and its host key is known."""

    instance_id: str
    address: str
    node_type: NodeType
    host_key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A node in its slot."""

    slot: int
    instance_id: str
    address: str
    node_type: NodeType
    host_key: str


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
    def complete(self) -> bool:
        """Whether everybody who was asked for is there."""
        return len(self.members) >= self.expected

    def member(self, instance_id: str) -> Member | None:
        """The slot of an instance, if it has one."""
        return next((member for member in self.members if member.instance_id == instance_id), None)


EMPTY = Membership(generation=0, expected=0, members=())
"""Before the first coordinator pass."""


def next_membership(current: Membership, *, expected: int, nodes: Sequence[Node], gone: Collection[str]) -> Membership:
    """What the membership should be now; the same object when nothing has to change."""
    members = assign_slots(current.members, nodes=nodes, gone=gone)
    if members == current.members and expected == current.expected and current.generation > 0:
        return current
    return Membership(generation=current.generation + 1, expected=expected, members=members)


def assign_slots(members: Iterable[Member], *, nodes: Sequence[Node], gone: Collection[str]) -> tuple[Member, ...]:
    """Keep who is there, free the slots of who is gone, give newcomers the lowest free slots.

    Slot 1 is the master's alone; a second master waits until the first is gone.
    """
    known = {node.instance_id: node for node in nodes}
    slots = {
        member.slot: _refreshed(member, known.get(member.instance_id))
        for member in members
        if member.instance_id not in gone
    }
    placed = {member.instance_id for member in slots.values()}
    newcomers = sorted(
        (node for node in nodes if node.instance_id not in placed and node.instance_id not in gone),
        key=lambda node: node.instance_id,
    )
    for node in newcomers:
        slot = _lowest_free(slots, node.node_type)
        if slot is not None:
            slots[slot] = Member(slot=slot, **asdict(node))
    return tuple(slots[slot] for slot in sorted(slots))


def _refreshed(member: Member, node: Node | None) -> Member:
    return member if node is None else replace(member, address=node.address, host_key=node.host_key)


def _lowest_free(slots: Collection[int], node_type: NodeType) -> int | None:
    if node_type == MASTER:
        return None if 1 in slots else 1
    return next(slot for slot in range(2, len(slots) + 3) if slot not in slots)


def members_to_json(members: Iterable[Member]) -> str:
    """The list as the table and the node's state file keep it."""
    return json.dumps([asdict(member) for member in members], separators=(",", ":"))


def members_from_json(text: str) -> tuple[Member, ...]:
    """Read the list; keys that a newer agent added are passed over."""
    try:
        rows = cast("list[dict[str, object]]", json.loads(text))
        members = tuple(_member(row) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"members must be a list of members, got {text[:80]!r}: {error!r}") from error
    return tuple(sorted(members, key=lambda member: member.slot))


def _member(row: dict[str, object]) -> Member:
    node_type = str(row["node_type"])
    if node_type not in (MASTER, WORKER):
        raise ValueError(f"node_type {node_type!r}")
    return Member(
        slot=int(str(row["slot"])),
        instance_id=str(row["instance_id"]),
        address=str(row["address"]),
        node_type=cast("NodeType", node_type),
        host_key=str(row["host_key"]),
    )
