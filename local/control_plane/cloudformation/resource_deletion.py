"""Delete one resource of a stack, including kinds that moto can create but not delete."""

from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.parsing import get_model_map
from moto.ec2.models import EC2Backend, ec2_backends

from local.control_plane.autoscaling import termination

_Deletion = Callable[[EC2Backend, Any], object]


def delete(resource: Any, definition: dict[str, Any], stack: Stack, deleted: Callable[[], None]) -> None:
    """Delete a resource and call ``deleted``, now or later; raise the service's error if it refuses.

    ``definition`` is the resource's part of the template with its references resolved.
    """
    if isinstance(resource, FakeAutoScalingGroup):
        _delete_group(resource, deleted)
        return
    account_and_region = stack.account_id, stack.region_name
    resource_type = definition["Type"]
    if deletion := _EC2_DELETIONS.get(resource_type):
        deletion(ec2_backends[stack.account_id][stack.region_name], resource)
    elif hasattr(resource, "delete"):
        resource.delete(*account_and_region)
    elif not hasattr(get_model_map()[resource_type].delete_from_cloudformation_json, "__isabstractmethod__"):
        name = resource.physical_resource_id
        get_model_map()[resource_type].delete_from_cloudformation_json(name, definition, *account_and_region)
    else:
        raise ValidationError(message=f"the local AWS cannot delete a resource of type {resource_type}")
    deleted()


def _delete_group(group: FakeAutoScalingGroup, deleted: Callable[[], None]) -> None:
    """First scale the group to zero, so that hooks delay its instances: CloudFormation does not force the deletion."""

    def when_empty() -> None:
        # a caller may have deleted the group in the meantime
        if group.name in group.autoscaling_backend.autoscaling_groups:
            group.autoscaling_backend.delete_auto_scaling_group(group.name)
        deleted()

    termination.scale_to_zero(group, when_empty)


def _delete_nat_gateway(backend: EC2Backend, gateway: Any) -> None:
    for address in backend.addresses:
        if address.eni is gateway._eni:
            backend.disassociate_address(address=address.public_ip)
    backend.delete_nat_gateway(gateway.id)
    backend.delete_network_interface(gateway._eni.id)
    # AWS lists it as deleted for an hour, but nothing here waits that long
    del backend.nat_gateways[gateway.id]


def _delete_association(backend: EC2Backend, association: Any) -> None:
    table = backend.get_route_table(association.route_table_id)
    for name in [n for n, subnet in table._associations.items() if subnet == association.subnet_id]:
        backend.disassociate_route_table(name)


def _delete_route(backend: EC2Backend, route: Any) -> None:
    backend.delete_route(route.route_table.id, route.destination_cidr_block)


def _delete_endpoint(backend: EC2Backend, endpoint: Any) -> None:
    if endpoint.state != "deleted":
        # moto also looks for its routes in deleted tables
        endpoint.route_table_ids = [table for table in endpoint.route_table_ids if table in backend.route_tables]
        backend.delete_vpc_endpoints([endpoint.id])
    del backend.vpc_end_points[endpoint.id]


_EC2_DELETIONS: dict[str, _Deletion] = {
    "AWS::EC2::EIP": lambda backend, address: backend.release_address(address=address.public_ip),
    "AWS::EC2::FlowLog": lambda backend, log: backend.delete_flow_logs([log.id]),
    "AWS::EC2::InternetGateway": lambda backend, gateway: backend.delete_internet_gateway(gateway.id),
    # Delete by ID: for an unknown name, moto claims that the call names no template.
    "AWS::EC2::LaunchTemplate": lambda backend, template: backend.delete_launch_template("", template.id),
    "AWS::EC2::NatGateway": _delete_nat_gateway,
    "AWS::EC2::Route": _delete_route,
    "AWS::EC2::RouteTable": lambda backend, table: backend.delete_route_table(table.id),
    "AWS::EC2::SubnetRouteTableAssociation": _delete_association,
    "AWS::EC2::VPCEndpoint": _delete_endpoint,
    "AWS::EC2::VPCGatewayAttachment": lambda backend, attachment: backend.detach_internet_gateway(
        attachment.gateway_id, attachment.vpc_id
    ),
}
