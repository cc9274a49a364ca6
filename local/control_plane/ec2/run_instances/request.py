"""Read what a launch requests: moto completes it from the launch template only after our wrappers have run."""

from collections.abc import Mapping
from typing import Any, Final

from moto.ec2.models import EC2Backend

DEFAULT_TYPE: Final = "m1.small"
"""Type that EC2 launches if a request names none."""


def template_data(backend: EC2Backend, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data of the launch template that RunInstances' arguments name; empty without one."""
    template: Any = request.get("launch_template")
    data: Mapping[str, Any] = backend._get_template_from_args(template).data if template else {}
    return data


def requested_type(request: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the instance type of RunInstances' arguments or, if they have only moto's default, of the template."""
    template_type: str | None = data.get("InstanceType") if request.get("is_instance_type_default") else None
    return template_type or request.get("instance_type") or DEFAULT_TYPE


def market_type(request: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    """Return ``spot`` or ``capacity-block``, or None for On-Demand instances."""
    market = request.get("instance_market_options") or data.get("InstanceMarketOptions") or {}
    return market if isinstance(market, str) else market.get("MarketType")
