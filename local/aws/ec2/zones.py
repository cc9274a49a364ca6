"""DescribeAvailabilityZones as accounts see it: with a Local Zone that was opted in to, in an order that moves.

AWS promises no order. moto has the region's own zones only, always in the same order; what moto itself makes of
its list (default subnets, ``Fn::GetAZs``) stays as it is.
"""

import itertools
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models.availability_zones_and_regions import Zone
from moto.ec2.responses.availability_zones_and_regions import AvailabilityZonesAndRegions

from local.aws.patching import around

_LOCAL_ZONES = {"us-east-1": Zone("us-east-1-bos-1a", "us-east-1", "use1-bos1-az1", "local-zone")}
"""Its name comes before the region's own by the alphabet."""
_calls = itertools.count(1)


def install() -> None:
    """Answer from a list that has all of an account's zones."""
    around(AvailabilityZonesAndRegions, "describe_availability_zones", _describe)


def _describe(original: Any, response: Any) -> ActionResult:
    backend = response.ec2_backend
    region, own = backend.region_name, backend.zones
    zones = [*own[region], *filter(None, [_LOCAL_ZONES.get(region)])]
    first = next(_calls) % len(zones)
    backend.zones = {**own, region: [*zones[first:], *zones[:first]]}
    try:
        answer: ActionResult = original(response)
        return answer
    finally:
        # The class has the real ones.
        del backend.zones
