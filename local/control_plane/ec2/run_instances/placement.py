"""Describe instances with the placement group and the tenancy of their launch template, which moto ignores.

The local AWS accepts every placement group, and all nodes share this machine whatever their tenancy is.
"""

from typing import Any, Final

from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance

from local.control_plane.ec2.run_instances.request import template_data
from local.control_plane.moto_patching import wrap

DEFAULT_TENANCY: Final = "default"


def install() -> None:
    """Patch moto: set the placement of launched instances."""
    wrap(EC2Backend, "run_instances", _run_instances)


def _run_instances(original: Any, backend: EC2Backend, *args: Any, **kwargs: Any) -> Any:
    placement = template_data(backend, kwargs).get("Placement", {})
    launched = original(backend, *args, **kwargs)
    instance: Instance
    for instance in launched.instances:
        instance.placement.group_name = placement.get("GroupName", "")
        instance.placement.tenancy = placement.get("Tenancy", DEFAULT_TENANCY)
    return launched
