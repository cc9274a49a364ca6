import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.contract import NodeType
from bootstrap.errors import RecordError
from bootstrap.membership import (
    EMPTY,
    Member,
    Membership,
    Node,
    assign_slots,
    members_from_json,
    members_to_json,
    next_membership,
)


def node(name: str, node_type: NodeType = "worker") -> Node:
    return Node(instance_id=name, address=f"10.{name}", node_type=node_type, host_key=f"key {name}")


def slots(members: tuple[Member, ...]) -> dict[int, str]:
    return {member.slot: member.instance_id for member in members}


names = st.integers(0, 15).map(lambda number: f"i-{number:02}")
nodes = st.lists(names, unique=True).map(lambda ids: [node(each) for each in ids])
# Each round: who is there, and which of the others have gone for certain.
rounds = st.lists(st.tuples(nodes, st.sets(names)), min_size=1, max_size=8)


@given(rounds, st.booleans())
def test_slots_are_stable_unique_and_without_needless_gaps(
    history: list[tuple[list[Node], set[str]]], with_master: bool
) -> None:
    members: tuple[Member, ...] = ()
    for there, gone in history:
        if with_master:
            there = [*there, node("i-master", "master")]
        before = slots(members)
        members = assign_slots(members, nodes=there, gone=gone)
        after = slots(members)
        assert len(set(after.values())) == len(after) == len(members)
        kept = {slot: name for slot, name in before.items() if name not in gone}
        assert kept.items() <= after.items()
        assert {each.instance_id for each in there} - gone <= set(after.values())
        taken = sorted(after.keys() - kept.keys() - {1})
        free = [slot for slot in range(2, 40) if slot not in kept]
        assert taken == free[: len(taken)]
        assert all((member.slot == 1) == (member.node_type == "master") for member in members)


def test_new_master_waits_for_the_old_one_and_then_takes_slot_1() -> None:
    old = assign_slots((), nodes=[node("i-old", "master"), node("i-w")], gone=())
    both = [node("i-old", "master"), node("i-new", "master"), node("i-w")]
    assert slots(assign_slots(old, nodes=both, gone=())) == {1: "i-old", 2: "i-w"}
    new = assign_slots(old, nodes=both[1:], gone={"i-old"})
    assert slots(new) == {1: "i-new", 2: "i-w"}


def test_silent_member_that_is_not_gone_for_certain_keeps_its_slot() -> None:
    members = assign_slots((), nodes=[node("i-1"), node("i-2")], gone=())
    assert slots(assign_slots(members, nodes=[node("i-2")], gone=())) == {2: "i-1", 3: "i-2"}


def test_changed_host_key_reaches_the_membership() -> None:
    first = next_membership(EMPTY, expected=1, nodes=[node("i-1")], gone=())
    changed = Node(instance_id="i-1", address="10.i-1", node_type="worker", host_key="other")
    second = next_membership(first, expected=1, nodes=[changed], gone=())
    assert second.generation == first.generation + 1
    assert second.members[0].host_key == "other"


def test_generation_moves_only_with_a_change() -> None:
    first = next_membership(EMPTY, expected=0, nodes=[], gone=())
    assert first.generation == 1
    assert next_membership(first, expected=0, nodes=[], gone=()) is first
    assert next_membership(first, expected=2, nodes=[], gone=()).generation == 2


def test_complete_counts_everybody_who_was_asked_for() -> None:
    members = assign_slots((), nodes=[node("i-1")], gone=())
    assert Membership(generation=1, expected=1, members=members).complete
    assert not Membership(generation=1, expected=2, members=members).complete


def test_json_round_trip_passes_over_keys_of_newer_agents() -> None:
    members = assign_slots((), nodes=[node("i-1", "master"), node("i-2")], gone=())
    text = members_to_json(members)
    assert members_from_json(text) == members
    assert members_from_json(text.replace('{"slot"', '{"zone":"a","slot"')) == members


@pytest.mark.parametrize("text", ["", "{}x", "[1]", '[{"slot":1}]', '{"a":1}', "null"])
def test_fails_when_members_are_not_readable(text: str) -> None:
    with pytest.raises(RecordError, match="members must be a list of members"):
        members_from_json(text)
