"""Test the rules by which nodes get, keep and lose their index."""

from dataclasses import replace

import pytest

from bootstrap.cluster.membership import (
    NO_MEMBERSHIP,
    Member,
    Membership,
    Node,
    assign_node_indexes,
    membership_after,
)
from bootstrap.cluster.record_validation import MAX_GENERATION, MAX_NODES
from bootstrap.contract import NodeType


def node(name: str, node_type: NodeType = "worker", *, draining: bool = False) -> Node:
    return Node(instance_id=name, address=f"10.{name}", node_type=node_type, host_key=f"key {name}", draining=draining)


def by_index(members: tuple[Member, ...]) -> dict[int, str]:
    return {member.node_index: member.instance_id for member in members}


def filled(size: int) -> tuple[Member, ...]:
    """Build a master and its workers, i-1 to the last, each at the index in its ID."""
    nodes = [node("i-1", "master"), *(node(f"i-{node_index}") for node_index in range(2, size + 1))]
    return assign_node_indexes((), desired_nodes=size, nodes=nodes, departed=())


def test_new_master_gets_index_1_after_the_end_of_the_old_one() -> None:
    old = assign_node_indexes((), desired_nodes=9, nodes=[node("i-old", "master"), node("i-w")], departed=())
    both = [node("i-old", "master"), node("i-new", "master"), node("i-w")]
    assert by_index(assign_node_indexes(old, desired_nodes=9, nodes=both, departed=())) == {1: "i-old", 2: "i-w"}
    new = assign_node_indexes(old, desired_nodes=9, nodes=both[1:], departed={"i-old"})
    assert by_index(new) == {1: "i-new", 2: "i-w"}


def test_silent_member_keeps_its_index_until_known_to_be_gone() -> None:
    members = assign_node_indexes((), desired_nodes=9, nodes=[node("i-1"), node("i-2")], departed=())
    assert by_index(assign_node_indexes(members, desired_nodes=9, nodes=[node("i-2")], departed=())) == {
        2: "i-1",
        3: "i-2",
    }


def test_member_that_drains_keeps_its_index_and_is_not_present() -> None:
    draining = membership_after(
        Membership(generation=1, desired_nodes=3, members=filled(3)),
        desired_nodes=3,
        nodes=[node("i-1", "master"), node("i-2", draining=True), node("i-3")],
        departed=(),
    )
    assert by_index(draining.members) == {1: "i-1", 2: "i-2", 3: "i-3"}
    assert by_index(draining.active_members) == {1: "i-1", 3: "i-3"}
    assert draining.generation == 2
    assert (draining.has_at_least(None), draining.has_at_least(2), draining.has_at_least(3)) == (False, True, False)
    back = membership_after(draining, desired_nodes=3, nodes=[node("i-2")], departed=())
    assert by_index(back.active_members) == {1: "i-1", 2: "i-2", 3: "i-3"}


def test_draining_master_is_not_the_master() -> None:
    members = assign_node_indexes(filled(2), desired_nodes=2, nodes=[node("i-1", "master", draining=True)], departed=())
    here = Membership(generation=1, desired_nodes=2, members=filled(2))
    assert here.master == here.members[0]
    assert replace(here, members=members).master is None


def test_node_draining_before_joining_never_becomes_a_member() -> None:
    assert assign_node_indexes((), desired_nodes=3, nodes=[node("i-1", draining=True)], departed=()) == ()


def test_replacement_waits_for_the_end_of_its_predecessor() -> None:
    nodes = [node("i-2", draining=True), node("i-new")]
    waiting = assign_node_indexes(filled(3), desired_nodes=3, nodes=nodes, departed=())
    assert by_index(waiting) == {1: "i-1", 2: "i-2", 3: "i-3"}
    assert by_index(assign_node_indexes(waiting, desired_nodes=3, nodes=nodes, departed={"i-2"})) == {
        1: "i-1",
        2: "i-new",
        3: "i-3",
    }


@pytest.mark.parametrize(
    ("first", "last", "after"),
    [
        (4, 5, {1: "i-1", 2: "i-2", 3: "i-3"}),
        (2, 3, {1: "i-1", 2: "i-4", 3: "i-5"}),
        (5, 2, {1: "i-1", 2: "i-4", 3: "i-3"}),
        (3, 4, {1: "i-1", 2: "i-2", 3: "i-5"}),
    ],
)
def test_shrink_closes_index_gaps_once_after_the_last_departure(first: int, last: int, after: dict[int, str]) -> None:
    before = Membership(generation=7, desired_nodes=5, members=filled(5))
    draining = [node(f"i-{node_index}", draining=True) for node_index in (first, last)]
    asked = membership_after(before, desired_nodes=3, nodes=draining, departed=())
    assert by_index(asked.members) == by_index(before.members)
    one_gone = membership_after(asked, desired_nodes=3, nodes=draining[1:], departed={f"i-{first}"})
    assert by_index(one_gone.members) == {
        node_index: name for node_index, name in by_index(before.members).items() if node_index != first
    }
    settled = membership_after(one_gone, desired_nodes=3, nodes=[], departed={f"i-{last}"})
    assert by_index(settled.members) == after
    assert settled.generation == one_gone.generation + 1
    assert membership_after(settled, desired_nodes=3, nodes=[], departed=()) is settled


def test_shrink_waits_while_the_group_has_not_chosen_who_leaves() -> None:
    assert by_index(assign_node_indexes(filled(5), desired_nodes=3, nodes=[], departed={"i-2"})) == {
        1: "i-1",
        3: "i-3",
        4: "i-4",
        5: "i-5",
    }


def test_index_gaps_stay_while_a_node_is_leaving() -> None:
    draining = [node("i-2", draining=True)]
    one_gone = assign_node_indexes(filled(5), desired_nodes=4, nodes=draining, departed={"i-3"})
    assert by_index(one_gone) == {1: "i-1", 2: "i-2", 4: "i-4", 5: "i-5"}
    assert by_index(assign_node_indexes(one_gone, desired_nodes=4, nodes=[], departed={"i-2"})) == {
        1: "i-1",
        2: "i-5",
        4: "i-4",
    }


def test_shrink_without_a_master_keeps_its_place_free() -> None:
    three_left = assign_node_indexes(filled(5), desired_nodes=3, nodes=[], departed={"i-1", "i-3"})
    assert by_index(three_left) == {2: "i-2", 4: "i-4", 5: "i-5"}
    two_left = assign_node_indexes(three_left, desired_nodes=3, nodes=[node("i-new", "master")], departed={"i-2"})
    assert by_index(two_left) == {1: "i-new", 2: "i-4", 3: "i-5"}


def test_indexes_stay_while_a_replacement_is_missing() -> None:
    assert by_index(assign_node_indexes(filled(5), desired_nodes=5, nodes=[], departed={"i-3"})) == {
        1: "i-1",
        2: "i-2",
        4: "i-4",
        5: "i-5",
    }


@pytest.mark.parametrize(
    "changed",
    [
        replace(node("i-1"), host_key="other"),
        replace(node("i-1"), ssh_key="other"),
        replace(node("i-1"), address="10.9.9.9"),
    ],
)
def test_what_a_node_changes_reaches_the_membership(changed: Node) -> None:
    first = membership_after(NO_MEMBERSHIP, desired_nodes=2, nodes=[node("i-1")], departed=())
    second = membership_after(first, desired_nodes=2, nodes=[changed], departed=())
    assert second.generation == first.generation + 1
    assert [(member.node_index, member.node) for member in second.members] == [(2, changed)]


def test_generation_moves_only_with_a_change() -> None:
    first = membership_after(NO_MEMBERSHIP, desired_nodes=0, nodes=[], departed=())
    assert first.generation == 1
    assert membership_after(first, desired_nodes=0, nodes=[], departed=()) is first
    assert membership_after(first, desired_nodes=2, nodes=[], departed=()).generation == 2


def test_has_at_least_none_requires_all_desired_nodes() -> None:
    members = assign_node_indexes((), desired_nodes=9, nodes=[node("i-1")], departed=())
    assert Membership(generation=1, desired_nodes=1, members=members).has_at_least(None)
    assert not Membership(generation=1, desired_nodes=2, members=members).has_at_least(None)
    assert Membership(generation=1, desired_nodes=2, members=members).has_at_least(1)


def test_generation_begins_again_at_its_limit() -> None:
    last = Membership(generation=MAX_GENERATION, desired_nodes=1, members=())
    assert membership_after(last, desired_nodes=2, nodes=[], departed=()).generation == 1


def test_expected_nodes_are_limited_to_the_membership_size() -> None:
    assert membership_after(NO_MEMBERSHIP, desired_nodes=5000, nodes=[], departed=()).desired_nodes == MAX_NODES


def test_member_whose_type_does_not_fit_its_index_gets_another() -> None:
    # The node type comes from the group, even if the membership was forged.
    forged = tuple(replace(member, node_type="master") for member in filled(2))
    nodes = [node("i-1", "master"), node("i-2")]
    assert by_index(assign_node_indexes(forged, desired_nodes=2, nodes=nodes, departed=())) == {1: "i-1", 2: "i-2"}
    swapped = (replace(filled(2)[1], node_index=1), replace(filled(2)[0], node_index=2))
    assert by_index(assign_node_indexes(swapped, desired_nodes=2, nodes=nodes, departed=())) == {1: "i-1", 2: "i-2"}
