"""Pair the nodes in the rounds of a round-robin tournament, so that each node meets different partners."""

from typing import Final

Pair = tuple[int, int]
"""Two nodes by their position in the job, the lower one first."""
PARTNERS: Final = 3
"""Number of partners of each node, if there are that many; a good node counts as slow only if all of them are slow."""


def pair_rounds(nodes: int) -> list[list[Pair]]:
    """Return the pairs of each round; no two pairs of a round share a node, and no pair occurs twice.

    This is the circle method: one node stays, the others move on by one place each round. With an odd number of nodes,
    one of them pauses in each round, so there is one more round.
    """
    if nodes < 2:
        return []
    circle: list[int | None] = [*range(nodes), *([None] if nodes % 2 else [])]
    rounds = []
    for _ in range(min(len(circle) - 1, PARTNERS + nodes % 2)):
        half = len(circle) // 2
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds
