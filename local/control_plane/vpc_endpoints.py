"""Decide which calls of nodes arrive: through an endpoint of their VPC, or over a route to the internet.

A service's name resolves to the VPC's interface endpoint if there is one with private DNS names; a gateway endpoint is
a route in the VPC's route tables ("Access an AWS service using an interface VPC endpoint", "Gateway endpoints", AWS
PrivateLink). All services have one address here, so that the firewall cannot tell them apart: it lets nodes without
a way to the internet through with a source address of their own, and this module judges each of their calls. It also
judges whether the node's security groups let the call out: to the endpoint's subnets, or to AWS's prefix list of the
service, to which a gateway endpoint is the route.
"""

import select
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, ip_address
from typing import Any, Final

from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.models.managed_prefixes import ManagedPrefixList
from moto.ec2.models.security_groups import SecurityGroup, SecurityGroupRule
from moto.ec2.models.vpcs import VPCBackend, VPCEndPoint

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import find_session
from local.control_plane.ec2.prefix_lists import current_entries
from local.control_plane.moto_patching import wrap
from local.network.addresses import API_ADDRESS, ENDPOINT_SOURCES

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
        return any(_lets_in(endpoint, instance) and _lets_out(instance, _subnets(endpoint)) for endpoint in named)
    table = _route_table(backend, subnet)
    if any(table in endpoint.route_table_ids for endpoint in endpoints if not _is_interface(endpoint)):
        return _lets_out(instance, _listed_blocks(backend, service_name))
    if ip_address(request.environ["REMOTE_ADDR"]) in ENDPOINT_SOURCES:
        return False
    return _lets_out(instance, [IPv4Network(API_ADDRESS)])


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
    if _covers(rule, IPv4Network(str(instance.private_ip))):
        return True
    return _has_port(rule) and rule.source_group.get("GroupId") in {group.id for group in _groups(instance)}


def _lets_out(instance: Instance, blocks: Sequence[IPv4Network]) -> bool:
    """Return True if the instance's groups together let it out to all of these blocks."""
    rules = [rule for group in _groups(instance) for rule in group.egress_rules]
    return all(any(_covers(rule, block) for rule in rules) for block in blocks)


def _groups(instance: Instance) -> Sequence[SecurityGroup]:
    """Return the groups of its first interface, which has the VPC's default group if the launch names none."""
    groups: Sequence[SecurityGroup] = instance.nics[0].group_set
    return groups


def _has_port(rule: SecurityGroupRule) -> bool:
    in_range = (rule.from_port or 0) <= HTTPS <= (rule.to_port or 0)
    return rule.ip_protocol == "-1" or (rule.ip_protocol == "tcp" and in_range)


def _covers(rule: SecurityGroupRule, block: IPv4Network) -> bool:
    """Return True if a rule permits port 443 of a whole block."""
    peers = [IPv4Network(rule.cidr_ipv4)] if rule.cidr_ipv4 else []
    if rule.prefix_list_id:
        peers += _blocks(rule.ec2_backend.managed_prefix_lists[rule.prefix_list_id])
    return _has_port(rule) and any(block.subnet_of(peer) for peer in peers)


def _subnets(endpoint: VPCEndPoint) -> list[IPv4Network]:
    """Return the blocks in which an interface endpoint has its addresses, which the local AWS does not choose."""
    return [IPv4Network(endpoint.ec2_backend.get_subnet(name).cidr_block) for name in endpoint.subnet_ids or []]


def _listed_blocks(backend: EC2Backend, service_name: str) -> list[IPv4Network]:
    """Return the blocks of AWS's prefix list of a service, to which its gateway endpoint is the route."""
    lists = backend.managed_prefix_lists.values()
    return [block for each in lists if each.prefix_list_name == service_name for block in _blocks(each)]


def _blocks(prefix_list: ManagedPrefixList) -> list[IPv4Network]:
    return [IPv4Network(entry["Cidr"]) for entry in current_entries(prefix_list)]
