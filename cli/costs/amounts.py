"""Format amounts of US dollars, so that the parts on the screen add up to the sum beside them."""

import math
from collections.abc import Mapping


def dollars(value: float | None) -> str:
    """Format an amount for display."""
    return "unknown" if value is None else f"{value:.2f}"


def dollars_by_kind(amounts: Mapping[str, float | None]) -> dict[str, str]:
    """Format the parts of a sum for display; if one is unknown, round each by itself.

    Of the parts that were rounded down, those with the largest remainders get the cents that the sum has more. So each
    is less than a cent from its amount.
    """
    known = {kind: 100 * amount for kind, amount in amounts.items() if amount is not None}
    if len(known) < len(amounts):
        return {kind: dollars(amount) for kind, amount in amounts.items()}
    cents = {kind: math.floor(amount) for kind, amount in known.items()}
    total = round(100 * float(dollars(sum(known.values()) / 100)))
    missing = total - sum(cents.values())
    for kind in sorted(known, key=lambda kind: cents[kind] - known[kind])[:missing]:
        cents[kind] += 1
    return {kind: dollars(amount / 100) for kind, amount in cents.items()}
