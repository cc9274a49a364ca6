"""Answer DescribePlacementGroups, which moto lacks, and delete no placement group that has instances.

AWS: "Delete a placement group" (Amazon EC2 User Guide). Only stacks create groups here, and each has capacity.
"""

from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.responses.instances import InstanceResponse

from local.control_plane.moto_patching import add

_GROUPS: Final[dict[tuple[str, str], dict[str, str]]] = {}
"""Strategy of each group by its name, by account and region."""


def install() -> None:
    """Patch moto: add the call."""
    add(InstanceResponse, "describe_placement_groups", _describe)


def create(account: str, region: str, name: str, strategy: str) -> None:
    """Create a placement group."""
    _GROUPS.setdefault((account, region), {})[name] = strategy


def delete(account: str, region: str, name: str) -> None:
    """Delete a placement group. Raises DeletePlacementGroup's error if an instance is in it."""
    backend: EC2Backend = ec2_backends[account][region]
    if any(i.placement.group_name == name and i.state != "terminated" for i in backend.all_instances()):
        message = f"The placement group '{name}' is in use and may not be deleted."
        raise EC2ClientError("InvalidPlacementGroup.InUse", message)
    _GROUPS[account, region].pop(name, None)


def _describe(response: Any) -> ActionResult:
    groups = _GROUPS.get((response.current_account, response.region), {})
    names = response._get_param("GroupNames", []) or [*groups]
    for name in names:
        if name not in groups:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    described = [{"GroupName": name, "State": "available", "Strategy": groups[name]} for name in names]
    return ActionResult({"PlacementGroups": described})
