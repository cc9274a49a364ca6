"""Answer GetSpotPlacementScores, which moto lacks: a score from 1 to 10 for each zone or region, by its capacity.

AWS: "Spot placement score" (Amazon EC2 User Guide). Scores of fewer than three types are always low; AWS does not
say how low, and here they are at most 3. AWS's own scores depend on more than capacity, and do not promise any.
"""

from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.responses.instances import InstanceResponse

from local.control_plane.limits.capacity import available_capacity, zones_offering
from local.control_plane.limits.limit_files import CapacityPool
from local.control_plane.moto_patching import add

_MAX_SCORE: Final = 10
_MAX_SCORE_OF_FEW_TYPES: Final = 3
_FEW: Final = 3


def install() -> None:
    """Patch moto: add the call."""
    add(InstanceResponse, "get_spot_placement_scores", _scores)


def _scores(response: Any) -> ActionResult:
    types, target = response._get_param("InstanceTypes", []), int(response._get_param("TargetCapacity"))
    if not types:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter InstanceTypes")
    scores: list[dict[str, Any]] = []
    for region in response._get_param("RegionNames", []) or [response.region]:
        backend = ec2_backends[response.current_account][region]
        zone_scores = _zone_scores(backend, types, target)
        if response._get_bool_param("SingleAvailabilityZone"):
            scores += [
                {"Region": region, "AvailabilityZoneId": zone_id, "Score": score}
                for zone_id, score in zone_scores.items()
            ]
        elif zone_scores:
            scores.append({"Region": region, "Score": max(zone_scores.values())})
    best = sorted(scores, key=lambda score: -score["Score"])[:10]
    return ActionResult({"SpotPlacementScores": best})


def _zone_scores(backend: EC2Backend, types: list[str], target: int) -> dict[str, int]:
    """Return the scores by zone ID; a zone that offers none of the types has none."""
    maximum = _MAX_SCORE if len(types) >= _FEW else _MAX_SCORE_OF_FEW_TYPES
    scores: dict[str, int] = {}
    for zone in backend.zones[backend.region_name]:
        offered = [name for name in types if zone.name in zones_offering(backend.region_name, name)]
        if offered:
            pools = [CapacityPool(instance_type=name, zone=zone.name, spot=True) for name in offered]
            available = sum(available_capacity(backend, pool) for pool in pools)
            scores[zone.zone_id] = max(1, int(maximum * min(1.0, available / target)))
    return scores
