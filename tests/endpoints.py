"""Create the VPC endpoints that a private cluster needs, as the owner of its VPC does."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cli.preflight import endpoints

SERVICES: Final = (
    *endpoints.GATEWAY_SERVICES,
    *endpoints.INTERFACE_SERVICES,
    *endpoints.MASTER_SERVICES,
    *endpoints.SESSION_SERVICES,
)
"""Services that a private cluster calls; preflight asks for an endpoint of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoints:
    """Make and delete the endpoints of one VPC."""

    ec2: Any
    vpc_id: str
    subnet: str
    route_table_id: str
    """The subnet's route table."""
    security_group_id: str
    """Security group of the interface endpoints."""

    def create(self, services: Iterable[str] = SERVICES) -> dict[str, str]:
        """Return the IDs of the new endpoints by service."""
        return {service: self._create(service) for service in services}

    def delete(self, endpoint_ids: Iterable[str]) -> None:
        self.ec2.delete_vpc_endpoints(VpcEndpointIds=[*endpoint_ids])

    def _create(self, service: str) -> str:
        if service in endpoints.GATEWAY_SERVICES:
            place = {"VpcEndpointType": "Gateway", "RouteTableIds": [self.route_table_id], "PrivateDnsEnabled": False}
        else:
            place = {
                "VpcEndpointType": "Interface",
                "SubnetIds": [self.subnet],
                "SecurityGroupIds": [self.security_group_id],
                "PrivateDnsEnabled": True,
            }
        name = f"com.amazonaws.{self.ec2.meta.region_name}.{service}"
        return str(
            self.ec2.create_vpc_endpoint(VpcId=self.vpc_id, ServiceName=name, **place)["VpcEndpoint"]["VpcEndpointId"]
        )


def https_from(block: str) -> list[dict[str, Any]]:
    """Return the permissions of a group that lets a block in at port 443."""
    return [{"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": block}]}]
