"""Answer DescribeAvailabilityZones as in real accounts: with a Local Zone, and in a changing order.

AWS guarantees no order. moto returns only the region's own zones, always in the same order. What moto derives from its
list (default subnets, ``Fn::GetAZs``) stays unchanged.
"""

import itertools
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models.availability_zones_and_regions import Zone
from moto.ec2.responses.availability_zones_and_regions import AvailabilityZonesAndRegions

from local.control_plane.moto_patching import wrap

_LOCAL_ZONES = {"us-east-1": Zone("us-east-1-bos-1a", "us-east-1", "use1-bos1-az1", "local-zone")}
"""Local Zones of an account that opted in; the name sorts before the region's own."""
_calls = itertools.count(1)


def install() -> None:
    """Patch moto: answer from a list of all the account's zones."""
    wrap(AvailabilityZonesAndRegions, "describe_availability_zones", _describe)


def _describe(original: Any, response: Any) -> ActionResult:
    backend = response.ec2_backend
    region, zones_by_region = backend.region_name, backend.zones
    zones = [*zones_by_region[region], *filter(None, [_LOCAL_ZONES.get(region)])]
    first = next(_calls) % len(zones)
    backend.zones = {**zones_by_region, region: [*zones[first:], *zones[:first]]}
    try:
        answer: ActionResult = original(response)
        return answer
    finally:
        # Delete the instance's list, which hides that of its class.
        del backend.zones
