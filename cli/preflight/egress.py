"""Check that ``egress`` lets the nodes out to the endpoints of an existing VPC."""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from cli.preflight.endpoints import GATEWAY_SERVICES, called_services, list_endpoints, service_of
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, VpcEndpointTypeDef

SUBJECT: Final = "egress"
_FIX: Final = "add it to egress"


def check_egress(target: PreflightTarget) -> Iterator[Finding]:
    """Find what ``egress`` leaves out of the endpoints that nodes call, and the services that have no endpoint."""
    props = target.props
    if props.vpc_id is None or not props.limits_egress:
        return
    called = {*GATEWAY_SERVICES, *called_services(target)}
    endpoints = [e for e in list_endpoints(target, props.vpc_id) if service_of(e["ServiceName"]) in called]
    interfaces = [endpoint for endpoint in endpoints if endpoint.get("PrivateDnsEnabled")]
    gateways = [endpoint for endpoint in endpoints if endpoint.get("RouteTableIds")]
    allowed = [block for entry in props.egress for block in _resolve(target, entry)]
    problems = [*_closed_subnets(target, interfaces, allowed), *_closed_lists(target, gateways, allowed)]
    yield from problems or [ok(SUBJECT, f"it includes the endpoints of {props.vpc_id}")]
    if others := sorted(called.difference(service_of(e["ServiceName"]) for e in (*interfaces, *gateways))):
        sentence = f"{props.vpc_id} has no endpoint of {', '.join(others)}"
        yield warning(SUBJECT, sentence, "egress must include the public addresses, or create the endpoints")


def _closed_subnets(
    target: PreflightTarget, interfaces: "Sequence[VpcEndpointTypeDef]", allowed: Sequence[IPv4Network]
) -> Iterator[Finding]:
    """Check the subnets of the interface endpoints, which have their addresses there."""
    ids = sorted({subnet_id for endpoint in interfaces for subnet_id in endpoint.get("SubnetIds", [])})
    if not ids:
        return
    for subnet in target.clients.ec2.describe_subnets(SubnetIds=ids)["Subnets"]:
        name, block = subnet["SubnetId"], subnet["CidrBlock"]
        if not _is_covered(IPv4Network(block), allowed):
            services = sorted(service_of(e["ServiceName"]) for e in interfaces if name in e.get("SubnetIds", []))
            sentence = f"{_shown(target)} leaves out {block}, the endpoints of {', '.join(services)} in {name}"
            yield problem(SUBJECT, sentence, _FIX)


def _closed_lists(
    target: PreflightTarget, gateways: "Sequence[VpcEndpointTypeDef]", allowed: Sequence[IPv4Network]
) -> Iterator[Finding]:
    """Check AWS's prefix lists of the services with a gateway endpoint, which is a route to these addresses."""
    if not gateways:
        return
    names = sorted({endpoint["ServiceName"] for endpoint in gateways})
    filters: Sequence[FilterTypeDef] = [{"Name": "prefix-list-name", "Values": names}]
    pages = target.clients.ec2.get_paginator("describe_managed_prefix_lists").paginate(Filters=filters)
    for prefix_list in (each for page in pages for each in page["PrefixLists"]):
        list_id = prefix_list["PrefixListId"]
        if not all(_is_covered(block, allowed) for block in _resolve(target, list_id)):
            sentence = f"{_shown(target)} leaves out {list_id}, the prefix list {prefix_list['PrefixListName']}"
            yield problem(SUBJECT, sentence, _FIX)


def _resolve(target: PreflightTarget, entry: str) -> list[IPv4Network]:
    """Return a block, or those of a prefix list."""
    if not entry.startswith("pl-"):
        return [IPv4Network(entry)]
    pages = target.clients.ec2.get_paginator("get_managed_prefix_list_entries").paginate(PrefixListId=entry)
    return [IPv4Network(each["Cidr"]) for page in pages for each in page["Entries"]]


def _is_covered(block: IPv4Network, allowed: Sequence[IPv4Network]) -> bool:
    return any(block.subnet_of(each) for each in allowed)


def _shown(target: PreflightTarget) -> str:
    return ",".join(target.props.egress)
