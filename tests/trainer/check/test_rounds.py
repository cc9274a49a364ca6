"""Test that the rounds cover every node with different partners."""

from collections import Counter

import pytest

from trainer.check.rounds import PARTNERS, pair_rounds


def test_single_node_has_no_partner() -> None:
    assert pair_rounds(1) == []


@pytest.mark.parametrize("nodes", range(2, 66))
def test_every_node_meets_different_partners(nodes: int) -> None:
    rounds = pair_rounds(nodes)
    for pairs in rounds:
        seen = [node for pair in pairs for node in pair]
        assert len(seen) == len(set(seen)) == nodes - nodes % 2
    pairs = [pair for round_pairs in rounds for pair in round_pairs]
    assert len(pairs) == len(set(pairs))
    assert all(0 <= a < b < nodes for a, b in pairs)
    meetings = Counter(node for pair in pairs for node in pair)
    assert min(meetings[node] for node in range(nodes)) == min(nodes - 1, PARTNERS)
    assert len(rounds) <= PARTNERS + 1
