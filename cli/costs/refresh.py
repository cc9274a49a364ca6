"""Refresh stacks/prices/price_list.json with the AWS Price List API, and show what has changed.

    python -m cli.costs.refresh us-east-1 eu-west-1

This queries the On-Demand prices of the catalog's instance types, gp3 volumes, NAT gateways, public addresses,
buckets and EFS in each region. It needs credentials with pricing:GetProducts, and changes nothing in AWS.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cli.costs.price_file import render
from stacks.catalog.instance_types import find
from stacks.prices.price_list import FALLBACK_REGION, PRICES_FILE

API_REGION: Final = "us-east-1"
"""Region of the Price List API, which few regions have; each has the prices of all regions."""
_INSTANCES: Final = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
    "licenseModel": "No License required", "marketoption": "OnDemand",
}  # fmt: skip
_PARTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "gp3_gib_month": ("AmazonEC2", {"productFamily": "Storage", "volumeApiName": "gp3"}),
    "nat_gateway_hour": ("AmazonEC2", {"productFamily": "NAT Gateway", "operation": "NatGateway"}),
    "public_address_hour": ("AmazonVPC", {"groupDescription": "Hourly charge for In-use Public IPv4 Addresses"}),
    "efs_gb_month": ("AmazonEFS", {"productFamily": "Storage", "storageClass": "General Purpose"}),
    "bucket_gb_month": ("AmazonS3", {"productFamily": "Storage", "volumeType": "Standard"}),
}
"""Service and filters of each part except the instances."""
_MONTHLY_UNIT: Final = "GB-Mo"
_HOURLY_UNIT: Final = "Hrs"


class PriceError(Exception):
    """The API has no unique price for something."""


def products(pricing: Any, service: str, region: str, wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield a service's products in a region that have all wanted attributes."""
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
    pages = pricing.get_paginator("get_products").paginate(
        ServiceCode=service, Filters=[*filters, {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}]
    )
    for page in pages:
        for text in page["PriceList"]:
            yield json.loads(text)


def first_price(product: Mapping[str, Any], units: Sequence[str]) -> float | None:
    """Return the On-Demand price of a product's first tier in one of the units, in US dollars."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for tier in term["priceDimensions"].values():
            price = float(tier["pricePerUnit"].get("USD", 0))
            if tier["unit"] in units and tier.get("beginRange", "0") == "0" and price > 0:
                return price
    return None


def region_prices(pricing: Any, region: str, today: str) -> dict[str, Any]:
    """Return a region's prices as stored in the file. Raises PriceError."""
    instances: dict[str, float] = {}
    for product in products(pricing, "AmazonEC2", region, _INSTANCES):
        name = product["product"]["attributes"].get("instanceType", "")
        price = first_price(product, [_HOURLY_UNIT])
        if price is not None and find(name) is not None:
            instances[name] = price
    if not instances:
        raise PriceError(f"no instance type has a price in {region}: is it a region?")
    parts = {name: _only_price(pricing, region, name) for name in sorted(_PARTS)}
    return {"date": today, **parts, "instances": instances}


def _only_price(pricing: Any, region: str, part: str) -> float:
    service, wanted = _PARTS[part]
    units = [_MONTHLY_UNIT] if part.endswith("_month") else [_HOURLY_UNIT]
    prices = {first_price(product, units) for product in products(pricing, service, region, wanted)} - {None}
    if len(prices) != 1:
        raise PriceError(f"{part} must have one price in {region}, got {sorted(map(str, prices)) or 'none'}")
    price = prices.pop()
    if price is None:
        raise PriceError(f"{part} has no price in {region}")
    return price


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each new region and each changed price."""
    for region in sorted(new):
        before, after = (_by_name(each.get(region, {})) for each in (old, new))
        if not before:
            yield f"+ {region}: {len(after)} prices"
            continue
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield f"  {region}: {name} {before.get(name)} -> {after.get(name)}"


def _by_name(prices: Mapping[str, Any]) -> dict[str, float]:
    """Return a region's prices by part or instance type, without their date."""
    return {name: prices[name] for name in _PARTS if name in prices} | dict(prices.get("instances", {}))


def main(arguments: Sequence[str]) -> int:
    """Show the difference from the Price List API's prices for the named regions, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m cli.costs.refresh", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("regions", nargs="*", default=[FALLBACK_REGION], metavar="REGION")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a price would change")
    options = parser.parse_args(arguments)
    known = {name: _flat(prices) for name, prices in json.loads(PRICES_FILE.read_text()).items()}
    new, today = dict(known), f"{datetime.now(timezone.utc):%Y-%m-%d}"
    try:
        pricing: Any = boto3.Session().client("pricing", region_name=API_REGION)
        for region in options.regions:
            new[region] = region_prices(pricing, region, today)
    except (PriceError, ClientError, BotoCoreError) as error:
        print(f"refresh: {error}", file=sys.stderr)
        return 1
    changes = list(difference(known, new))
    print("\n".join(changes) or "nothing has changed")
    if options.check:
        return 1 if changes else 0
    PRICES_FILE.write_text(render(new))
    print(f"wrote {PRICES_FILE}: {', '.join(options.regions)}")
    return 0


def _flat(prices: Mapping[str, Any]) -> dict[str, Any]:
    families = prices["instances"].items()
    return {**prices, "instances": {f"{name}.{size}": usd for name, sizes in families for size, usd in sizes.items()}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
