"""Name the services of AWS that nodes call, and list the endpoints through which a VPC offers them."""

from typing import TYPE_CHECKING, Final

from cli.preflight.target import PreflightTarget

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import VpcEndpointTypeDef

GATEWAY_SERVICES: Final = ("s3", "dynamodb")
INTERFACE_SERVICES: Final = ("autoscaling", "cloudformation", "logs")
"""Services that a worker calls (stacks/nodes/roles.py), besides GATEWAY_SERVICES."""
MASTER_SERVICES: Final = ("ec2",)
"""Further services that the master calls."""
SESSION_SERVICES: Final = ("ssm", "ssmmessages")
"""Services that the SSM agent of each node in a private cluster calls."""


def called_services(target: PreflightTarget) -> tuple[str, ...]:
    """Return the services that the master calls, besides GATEWAY_SERVICES; a worker calls some of them."""
    lustre = ("fsx",) if target.props.shared_storage.startswith("lustre:") else ()
    return (*INTERFACE_SERVICES, *MASTER_SERVICES, *lustre, *further_services(target))


def further_services(target: PreflightTarget) -> tuple[str, ...]:
    """Return the services that all nodes call because of the settings."""
    sessions = SESSION_SERVICES if target.props.private else ()
    return tuple(dict.fromkeys((*sessions, *secret_services(target))))


def secret_services(target: PreflightTarget) -> tuple[str, ...]:
    """Return the services from which each node reads secrets; these services use KMS themselves."""
    props = target.props
    return (*(("ssm",) if props.secret_parameters else ()), *(("secretsmanager",) if props.managed_secrets else ()))


def list_endpoints(target: PreflightTarget, vpc_id: str) -> "list[VpcEndpointTypeDef]":
    """Return the VPC's endpoints that work."""
    pages = target.clients.ec2.get_paginator("describe_vpc_endpoints").paginate(
        Filters=[{"Name": "vpc-id", "Values": [vpc_id]}]
    )
    return [endpoint for page in pages for endpoint in page["VpcEndpoints"] if endpoint["State"].lower() == "available"]


def service_of(name: str) -> str:
    """Return the service of an endpoint service's name, like com.amazonaws.us-east-1.logs."""
    return name.rpartition(".")[2]
