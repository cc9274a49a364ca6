"""Route tables of a stack's subnets: moto notes the association but the table does not know of it."""

from typing import Any

from moto.ec2.models import EC2Backend

from local.aws.patching import around


def install() -> None:
    """Let the table know of its subnets."""
    around(EC2Backend, "create_subnet_association", _associate)


def _associate(original: Any, backend: EC2Backend, route_table_id: str, subnet_id: str) -> Any:
    association = original(backend, route_table_id, subnet_id)
    backend.associate_route_table(route_table_id, subnet_id=subnet_id)
    return association
