"""Decide which calls of nodes arrive: through an endpoint of their VPC, or over a route to the internet.

A service's name resolves to the VPC's interface endpoint if there is one with private DNS names; a gateway endpoint is
a route in the VPC's route tables ("Access an AWS service using an interface VPC endpoint", "Gateway endpoints", AWS
PrivateLink). All services have one address here, so that the firewall cannot tell them apart: it lets nodes without
a way to the internet through with a source address of their own, and this module judges each of their calls.
"""

import select
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Final

from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.models.security_groups import SecurityGroup, SecurityGroupRule
from moto.ec2.models.vpcs import VPCBackend, VPCEndPoint

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import find_session
from local.control_plane.moto_patching import wrap
from local.network.addresses import ENDPOINT_SOURCES

HTTPS: Final = 443
SILENCE_S: Final = 120.0
"""Longest time to leave a connection open without an answer; the clients of nodes give up before."""


def install() -> None:
    """Patch moto: complete new endpoints as EC2 does."""
    wrap(VPCBackend, "create_vpc_endpoint", _create)


def _create(original: Any, backend: EC2Backend, *args: Any, **kwargs: Any) -> VPCEndPoint:
    """Give an endpoint EC2's defaults; moto gives private DNS names to gateway endpoints too."""
    endpoint: VPCEndPoint = original(backend, *args, **kwargs)
    endpoint.vpc_endpoint_type = endpoint.vpc_endpoint_type or "Gateway"
    if not _is_interface(endpoint):
        endpoint.private_dns_enabled = False
    elif not endpoint.security_group_ids:
        endpoint.security_group_ids = [g.id for g in backend.groups[endpoint.vpc_id].values() if g.name == "default"]
    return endpoint


def is_reachable(request: ApiRequest) -> bool:
    """Return False if a node made the call and its VPC has no way to the service."""
    instance = None if request.is_from_user else _sender(request)
    if instance is None:
        return True
    backend, subnet = instance.ec2_backend, instance.nics[0].subnet
    service_name = f"com.amazonaws.{request.credential.region}.{request.service}"
    endpoints: list[VPCEndPoint] = [
        endpoint
        for endpoint in backend.vpc_end_points.values()
        if (endpoint.vpc_id, endpoint.service_name, endpoint.state) == (subnet.vpc_id, service_name, "available")
    ]
    named = [e for e in endpoints if _is_interface(e) and e.private_dns_enabled]
    if named:  # The name resolves to nothing else, even if a NAT gateway could reach the service.
        return any(_lets_in(endpoint, instance) for endpoint in named)
    if ip_address(request.environ["REMOTE_ADDR"]) not in ENDPOINT_SOURCES:
        return True
    table = _route_table(backend, subnet)
    return any(table in endpoint.route_table_ids for endpoint in endpoints if not _is_interface(endpoint))


def wait_for_hang_up(environ: Mapping[str, Any]) -> None:
    """Wait until the client closes the connection, or for SILENCE_S."""
    poll = select.poll()
    poll.register(environ["werkzeug.socket"], select.POLLRDHUP)
    poll.poll(SILENCE_S * 1000)


def _sender(request: ApiRequest) -> Instance | None:
    """Return the instance whose role's credentials sign the call."""
    session = find_session(request.credential.access_key)
    if session is None:
        return None
    name = session.user_id.partition(":")[2]
    instances = (backend.get_instance_by_id(name) for backend in ec2_backends[session.account_id].values())
    return next((instance for instance in instances if instance is not None), None)


def _is_interface(endpoint: VPCEndPoint) -> bool:
    return str(endpoint.vpc_endpoint_type).lower() == "interface"


def _route_table(backend: EC2Backend, subnet: Any) -> str | None:
    """Return the subnet's own route table, or its VPC's main one."""
    tables = [table for table in backend.route_tables.values() if table.vpc_id == subnet.vpc_id]
    explicit = [t.id for t in tables if any(a.get("SubnetId") == subnet.id for a in t.associations)]
    main = [t.id for t in tables if t.main_association_id]
    return next(iter(explicit + main), None)


def _lets_in(endpoint: VPCEndPoint, instance: Instance) -> bool:
    """Return True if the endpoint has an interface, and one of its groups lets the instance in."""
    vpc_groups: Mapping[str, SecurityGroup] = instance.ec2_backend.groups[endpoint.vpc_id]
    groups = [group for group in vpc_groups.values() if group.id in endpoint.security_group_ids]
    return bool(endpoint.subnet_ids) and any(
        _permits(rule, instance) for group in groups for rule in group.ingress_rules
    )


def _permits(rule: SecurityGroupRule, instance: Instance) -> bool:
    in_range = (rule.from_port or 0) <= HTTPS <= (rule.to_port or 0)
    if rule.ip_protocol != "-1" and not (rule.ip_protocol == "tcp" and in_range):
        return False
    address = ip_address(str(instance.private_ip))
    blocks = [rule.cidr_ipv4] if rule.cidr_ipv4 else []
    if rule.prefix_list_id:
        listed = instance.ec2_backend.managed_prefix_lists[rule.prefix_list_id]
        blocks += [entry["Cidr"] for entry in listed.entries.get(listed.version or 0) or []]
    if any(address in ip_network(block) for block in blocks):
        return True
    return rule.source_group.get("GroupId") in {group.id for group in instance.dynamic_group_list}
