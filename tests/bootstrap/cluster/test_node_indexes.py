"""Check the rules for node indexes in any order of events: properties over random histories."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bootstrap.cluster.membership import Member, Node, assign_node_indexes

MASTERS = ("i-m1", "i-m2")
WORKERS = tuple(f"i-w{number}" for number in range(8))


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The result of one pass; nothing is known about an instance that is in none of the sets."""

    desired_nodes: int
    here: frozenset[str]
    draining: frozenset[str]
    departed: frozenset[str]

    @property
    def nodes(self) -> list[Node]:
        return [
            Node(
                instance_id=name,
                address="10.0.0.1",
                node_type="master" if name in MASTERS else "worker",
                host_key="key",
                draining=name in self.draining,
            )
            for name in sorted(self.here | self.draining)
        ]

    def applied_to(self, members: tuple[Member, ...]) -> tuple[Member, ...]:
        return assign_node_indexes(members, desired_nodes=self.desired_nodes, nodes=self.nodes, departed=self.departed)


def sets(names: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(names))


rounds = st.builds(
    Round,
    desired_nodes=st.integers(0, 7),
    here=sets(MASTERS + WORKERS),
    draining=st.just(frozenset()) | sets(MASTERS + WORKERS),
    departed=st.just(frozenset()) | sets(MASTERS + WORKERS),
)
full = st.integers(0, len(WORKERS)).map(
    lambda size: Round(
        desired_nodes=size + 1,
        here=frozenset({MASTERS[0], *WORKERS[:size]}),
        draining=frozenset(),
        departed=frozenset(),
    )
)
# Most relevant events happen to a cluster that was complete once, and to few of its nodes at a time.
few = st.frozensets(st.sampled_from(MASTERS + WORKERS), max_size=2)
disturbed = st.builds(Round, desired_nodes=st.integers(1, 9), here=few, draining=few, departed=few)
histories = st.lists(rounds, min_size=1, max_size=6) | st.builds(
    lambda first, later: [first, *later], full, st.lists(disturbed, min_size=1, max_size=5)
)


def by_index(members: tuple[Member, ...]) -> dict[str, int]:
    return {member.instance_id: member.node_index for member in members}


def indexes_kept(members: tuple[Member, ...], found: Round) -> dict[str, int]:
    """Return the members that are not departed, at their earlier indexes."""
    return {name: node_index for name, node_index in by_index(members).items() if name not in found.departed}


@given(histories)
def test_indexes_are_unique_and_only_a_master_has_index_1(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        members = found.applied_to(members)
        assert len(set(by_index(members).values())) == len(by_index(members)) == len(members)
        assert [member.node_index for member in members] == sorted(member.node_index for member in members)
        assert all((member.node_index == 1) == (member.node_type == "master") for member in members)


@given(histories)
def test_member_is_removed_if_and_only_if_it_is_gone(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        before, members = members, found.applied_to(members)
        assert indexes_kept(before, found).keys() <= by_index(members).keys()
        assert not found.departed & by_index(members).keys()


@given(histories)
def test_indexes_move_only_after_a_shrink_and_all_at_once(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        before, members = members, found.applied_to(members)
        old, new = indexes_kept(before, found), by_index(members)
        moved = {name for name, node_index in old.items() if new[name] != node_index}
        draining = {member.instance_id for member in members if member.draining}
        workers = [name for name in old if name not in MASTERS]
        over = not draining & old.keys() and len(workers) < found.desired_nodes
        assert moved == (
            {name for name, node_index in old.items() if node_index > max(found.desired_nodes, 1)} if over else set()
        )
        # They keep their order and take the lowest free indexes.
        targets = [new[name] for name in sorted(moved, key=lambda name: old[name])]
        free = [node_index for node_index in range(2, found.desired_nodes + 1) if node_index not in old.values()]
        assert targets == free[: len(targets)]


@given(histories)
def test_new_node_gets_the_lowest_free_index(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        before, members = members, found.applied_to(members)
        new = by_index(members)
        came = {name: node_index for name, node_index in new.items() if name not in indexes_kept(before, found)}
        taken = sorted(node_index for name, node_index in came.items() if name in WORKERS)
        held = {node_index for name, node_index in new.items() if name not in came}
        free = [node_index for node_index in range(2, found.desired_nodes + 1) if node_index not in held]
        assert taken == free[: len(taken)]
        # A present node is left out only if its index is taken: no free index stays unused.
        waiting = found.here - found.draining - found.departed - new.keys()
        assert not waiting & set(WORKERS) or len(taken) == len(free)
        assert not waiting & set(MASTERS) or 1 in new.values()
        assert came.keys() <= found.here - found.draining


@given(histories)
def test_assigning_indexes_again_changes_nothing(history: list[Round]) -> None:
    members: tuple[Member, ...] = ()
    for found in history:
        members = found.applied_to(members)
        assert found.applied_to(members) == members
