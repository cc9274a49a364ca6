"""The rules of the slots, whatever the order of events: properties over random histories."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bootstrap.cluster.membership import Member, Node, assign_slots

MASTERS = ("i-m1", "i-m2")
WORKERS = tuple(f"i-w{number}" for number in range(8))


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What one look at AWS finds: of an instance that is in none of the sets nothing is said."""

    expected: int
    here: frozenset[str]
    away: frozenset[str]
    gone: frozenset[str]

    @property
    def nodes(self) -> list[Node]:
        return [
            Node(
                instance_id=name,
                address="10.0.0.1",
                node_type="master" if name in MASTERS else "worker",
                host_key="key",
                away=name in self.away,
            )
            for name in sorted(self.here | self.away)
        ]

    def applied_to(self, members: tuple[Member, ...]) -> tuple[Member, ...]:
        return assign_slots(members, expected=self.expected, nodes=self.nodes, gone=self.gone)


def sets(names: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(names))


rounds = st.builds(
    Round,
    expected=st.integers(0, 7),
    here=sets(MASTERS + WORKERS),
    away=st.just(frozenset()) | sets(MASTERS + WORKERS),
    gone=st.just(frozenset()) | sets(MASTERS + WORKERS),
)
full = st.integers(0, len(WORKERS)).map(
    lambda size: Round(
        expected=size + 1, here=frozenset({MASTERS[0], *WORKERS[:size]}), away=frozenset(), gone=frozenset()
    )
)
# Most of what matters happens to a cluster that was whole once, and to few of its nodes at a time.
few = st.frozensets(st.sampled_from(MASTERS + WORKERS), max_size=2)
disturbed = st.builds(Round, expected=st.integers(1, 9), here=few, away=few, gone=few)
histories = st.lists(rounds, min_size=1, max_size=6) | st.builds(
    lambda first, later: [first, *later], full, st.lists(disturbed, min_size=1, max_size=5)
)


def slots(members: tuple[Member, ...]) -> dict[str, int]:
    return {member.instance_id: member.slot for member in members}


def kept(members: tuple[Member, ...], found: Round) -> dict[str, int]:
    """The members that are not gone, in the slots that they had."""
    return {name: slot for name, slot in slots(members).items() if name not in found.gone}


@given(histories)
def test_slot_is_held_once_and_slot_1_by_a_master_alone(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        members = found.applied_to(members)
        assert len(set(slots(members).values())) == len(slots(members)) == len(members)
        assert [member.slot for member in members] == sorted(member.slot for member in members)
        assert all((member.slot == 1) == (member.node_type == "master") for member in members)


@given(histories)
def test_member_leaves_only_when_it_is_gone_and_a_gone_one_always(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        before, members = members, found.applied_to(members)
        assert kept(before, found).keys() <= slots(members).keys()
        assert not found.gone & slots(members).keys()


@given(histories)
def test_slots_move_only_when_a_shrink_is_over_and_then_all_at_once(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        before, members = members, found.applied_to(members)
        old, new = kept(before, found), slots(members)
        moved = {name for name, slot in old.items() if new[name] != slot}
        away = {member.instance_id for member in members if member.away}
        workers = [name for name in old if name not in MASTERS]
        over = not away & old.keys() and len(workers) < found.expected
        assert moved == ({name for name, slot in old.items() if slot > max(found.expected, 1)} if over else set())
        # In the order that they had, into the lowest that were free.
        targets = [new[name] for name in sorted(moved, key=lambda name: old[name])]
        free = [slot for slot in range(2, found.expected + 1) if slot not in old.values()]
        assert targets == free[: len(targets)]


@given(histories)
def test_newcomer_that_is_there_gets_the_lowest_free_slot_up_to_the_end(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        before, members = members, found.applied_to(members)
        new = slots(members)
        came = {name: slot for name, slot in new.items() if name not in kept(before, found)}
        taken = sorted(slot for name, slot in came.items() if name in WORKERS)
        held = {slot for name, slot in new.items() if name not in came}
        free = [slot for slot in range(2, found.expected + 1) if slot not in held]
        assert taken == free[: len(taken)]
        # Who is there and not in finds its slot taken: no room is left unused.
        waiting = found.here - found.away - found.gone - new.keys()
        assert not waiting & set(WORKERS) or len(taken) == len(free)
        assert not waiting & set(MASTERS) or 1 in new.values()
        assert came.keys() <= found.here - found.away


@given(histories)
def test_second_look_at_the_same_changes_nothing(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        members = found.applied_to(members)
        assert found.applied_to(members) == members
