"""Encode sets of small numbers as ranges, which are short if the numbers are consecutive."""

from collections.abc import Iterable

Ranges = list[list[int]]
"""Pairs of the first number of a range and the first one after it."""


def to_ranges(numbers: Iterable[int]) -> Ranges:
    """Encode numbers as ranges."""
    runs: Ranges = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number:
            runs[-1][1] = number + 1
        else:
            runs.append([number, number + 1])
    return runs


def from_ranges(runs: Ranges) -> set[int]:
    """Decode the numbers in the ranges."""
    return {number for start, stop in runs for number in range(start, stop)}
