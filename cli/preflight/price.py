"""Report what the cluster's nodes cost."""

from collections.abc import Iterator

from cli.preflight.finding import Finding, ok
from cli.preflight.target import PreflightTarget
from stacks.prices.price_list import price_list
from stacks.prices.rate import costs_by_use, price_line


def check_price(target: PreflightTarget) -> Iterator[Finding]:
    """Report the cost per hour, busy or idle, by the list prices of the region."""
    line = price_line(target.props, price_list(target.region))
    yield ok("price", f"{line}, busy or idle; {costs_by_use(target.props)} cost extra")
