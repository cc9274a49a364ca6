"""The region's first availability zone, and the key under which the CDK's context keeps the list it comes from.

Imports no aws_cdk, so that preflight means the zone that the deploy takes.
"""

import re
from collections.abc import Iterable


def first_zone(zones: Iterable[str], region: str) -> str | None:
    """First by name of the region's own zones: the list also has the Local Zones that the account opted in to."""
    own = re.compile(rf"{re.escape(region)}[a-z]")
    return min(filter(own.fullmatch, zones), default=None)


def pin(account: str, region: str) -> str:
    """Key of cdk.context.json for the zones of an account and region."""
    return f"availability-zones:account={account}:region={region}"
