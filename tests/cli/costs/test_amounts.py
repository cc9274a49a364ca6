"""Test that shown parts add up to the shown sum."""

import pytest

from cli.costs.amounts import dollars, dollars_by_kind


@pytest.mark.parametrize(
    ("amounts", "shown"),
    [
        # Each rounds to 0.00, but the sum to 0.02.
        ([0.004, 0.0049, 0.004, 0.003], ["0.01", "0.01", "0.00", "0.00"]),
        # Each rounds up, but the sum is 0.02.
        ([0.006, 0.007, 0.006], ["0.01", "0.01", "0.00"]),
        ([0.29, 1.61, 0.045, 0.01], ["0.29", "1.61", "0.05", "0.01"]),
        ([0.0, 0.0], ["0.00", "0.00"]),
        ([3.0], ["3.00"]),
    ],
)
def test_shown_parts_add_up_to_the_shown_sum(amounts: list[float], shown: list[str]) -> None:
    found = dollars_by_kind({str(number): amount for number, amount in enumerate(amounts)})
    assert [*found.values()] == shown
    assert dollars(sum(map(float, shown))) == dollars(sum(amounts))


def test_unknown_part_leaves_the_others_as_they_are() -> None:
    assert dollars_by_kind({"nodes": None, "nat": 0.006}) == {"nodes": "unknown", "nat": "0.01"}
