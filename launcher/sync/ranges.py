"""Sets of small numbers, short on the wire when they are runs."""

from collections.abc import Iterable

Ranges = list[list[int]]
"""Pairs of the first number of a run and the first after it."""


def to_ranges(numbers: Iterable[int]) -> Ranges:
    """The runs of the numbers."""
    runs: Ranges = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number:
            runs[-1][1] = number + 1
        else:
            runs.append([number, number + 1])
    return runs


def from_ranges(runs: Ranges) -> set[int]:
    """The numbers in the runs."""
    return {number for start, stop in runs for number in range(start, stop)}
