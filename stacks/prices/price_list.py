"""Read the regions' list prices in price_list.json, which ``python -m cli.costs.refresh`` writes.

They are On-Demand list prices for Linux in US dollars: no discounts, no taxes, no data transfer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

PRICES_FILE: Final = Path(__file__).with_suffix(".json")
FALLBACK_REGION: Final = "us-east-1"
"""Region whose prices apply to regions that the file lacks."""
HOURS_PER_MONTH: Final = 730
"""Number of hours by which AWS converts monthly prices to hourly ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Prices of one region, in US dollars."""

    region: str
    """Region of the prices; FALLBACK_REGION if the file lacks the requested one."""
    date: str
    """Day on which cli.costs.refresh read these prices."""
    instances: Mapping[str, float]
    """Price per hour by instance type."""
    nat_gateway_hour: float
    public_address_hour: float
    gp3_gib_month: float
    bucket_gb_month: float
    efs_gb_month: float
    """Price of EFS Standard storage."""

    def describe(self) -> str:
        """Describe the prices, for display."""
        return f"list prices of {self.region}, {self.date}"


def price_list(region: str | None) -> PriceList:
    """Return the prices of a region, or of FALLBACK_REGION if the region is unknown."""
    known = _read(PRICES_FILE)
    name = FALLBACK_REGION if region is None or region not in known else region
    return _parse(name, known[name])


@cache
def _read(path: Path) -> Mapping[str, Any]:
    prices_by_region: Mapping[str, Any] = json.loads(path.read_text())
    return prices_by_region


def _parse(region: str, prices: Mapping[str, Any]) -> PriceList:
    families: Mapping[str, Mapping[str, float]] = prices["instances"]
    instances = {f"{family}.{size}": price for family, sizes in families.items() for size, price in sizes.items()}
    return PriceList(**{**prices, "region": region, "instances": instances})
