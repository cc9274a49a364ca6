"""Check that an existing VPC can host the cluster: subnets, free addresses, routes, name servers and endpoints."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from cli.preflight.endpoints import (
    GATEWAY_SERVICES,
    INTERFACE_SERVICES,
    called_services,
    further_services,
    list_endpoints,
    secret_services,
    service_of,
)
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget, is_deployed, vpc_exists

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import (
        FilterTypeDef,
        IpPermissionOutputTypeDef,
        RouteTableTypeDef,
        RouteTypeDef,
        SecurityGroupTypeDef,
        SubnetTypeDef,
        VpcEndpointTypeDef,
    )

SUBJECT: Final = "subnets"
CHINESE_SERVICES: Final = ("autoscaling", "cloudformation", "ec2", "fsx")
"""Services whose endpoints' names begin with cn. in China (aws-cdk-lib, ``InterfaceVpcEndpointAwsService``)."""
WITHOUT_INTERNET: Final = "docs/use/environment.md#packages-without-internet"
_DEFAULT: Final = "0.0.0.0/0"
_HTTPS: Final = 443


def check_subnets(target: PreflightTarget) -> Iterator[Finding]:
    """Find what the subnets lack for the nodes, with a fix for each; the deploy never changes the VPC."""
    props = target.props
    if props.vpc_id is None or props.subnet_id is None or props.master_subnet is None:
        return
    subnets = _subnets(target, props.vpc_id)
    if not subnets and not vpc_exists(target, props.vpc_id):
        return  # the check of the VPC reports it
    named = {"subnet_id": props.subnet_id, "master_subnet_id": props.master_subnet}
    if absent := [f"{name} {subnet_id}" for name, subnet_id in named.items() if subnet_id not in subnets]:
        listing = f"aws ec2 describe-subnets --region {target.region} --filters Name=vpc-id,Values={props.vpc_id}"
        yield problem(
            SUBJECT, f"{' and '.join(absent)}: no subnet of {props.vpc_id}", f"list its subnets with: {listing}"
        )
        return
    worker, master = subnets[props.subnet_id], subnets[props.master_subnet]
    problems = [
        *_free_addresses(target, worker, master),
        *_routes(target, worker, master),
        *_name_servers(target, props.vpc_id),
    ]
    yield from problems or [ok(SUBJECT, f"{props.vpc_id} has room, routes and name servers for the nodes")]


def _routes(target: PreflightTarget, worker: "SubnetTypeDef", master: "SubnetTypeDef") -> Iterator[Finding]:
    """Check how each subnet that gets nodes reaches AWS."""
    props, present = target.props, list_endpoints(target, worker["VpcId"])
    of_worker = (*INTERFACE_SERVICES, *further_services(target))
    of_master = called_services(target)
    if not props.private:
        yield from _master_route(target, master)
        if props.worker_count:
            yield from _worker_routes(target, worker, present)
    else:
        yield from _private_route(target, master, of_master, present)
        if props.worker_count and worker["SubnetId"] != master["SubnetId"]:
            yield from _private_route(target, worker, of_worker, present)
    # An endpoint's private name takes the calls of every subnet of the VPC, behind a NAT gateway too.
    yield from _closed_endpoints(target, master, of_master, present)
    if props.worker_count and worker["SubnetId"] != master["SubnetId"]:
        yield from _closed_endpoints(target, worker, of_worker, present)


def _private_route(
    target: PreflightTarget,
    subnet: "SubnetTypeDef",
    services: Sequence[str],
    present: "Sequence[VpcEndpointTypeDef]",
) -> Iterator[Finding]:
    """Check that nodes without a public address reach AWS; report what cannot work if they reach nothing else."""
    table = _route_table(target, subnet)
    route, name = _default_route(table), subnet["SubnetId"]
    if _leads_to_internet(route):
        sentence = f"{name} leads to an internet gateway, where nodes without a public address reach nothing"
        yield problem(SUBJECT, sentence, "choose a private subnet, with a NAT gateway or endpoints")
    elif route is None:
        if frameworks := ", ".join(target.props.frameworks):
            sentence = f"{name} has no default route, and frameworks ({frameworks}) are fetched from the internet"
            yield problem(SUBJECT, sentence, "leave frameworks out, or give the subnet a NAT gateway")
        yield from _endpoints(target, subnet, table, services, present)
    elif route.get("State") == "blackhole":
        yield from _blackhole(subnet, table)


def _of_vpc(vpc_id: str) -> "list[FilterTypeDef]":
    return [{"Name": "vpc-id", "Values": [vpc_id]}]


def _subnets(target: PreflightTarget, vpc_id: str) -> "dict[str, SubnetTypeDef]":
    pages = target.clients.ec2.get_paginator("describe_subnets").paginate(Filters=_of_vpc(vpc_id))
    return {subnet["SubnetId"]: subnet for page in pages for subnet in page["Subnets"]}


def _free_addresses(target: PreflightTarget, worker: "SubnetTypeDef", master: "SubnetTypeDef") -> Iterator[Finding]:
    if is_deployed(target):
        return
    needed: dict[str, int] = {worker["SubnetId"]: target.props.worker_count}
    needed[master["SubnetId"]] = needed.get(master["SubnetId"], 0) + 1
    by_id = {subnet["SubnetId"]: subnet for subnet in (worker, master)}
    for subnet in by_id.values():
        wanted, free = needed[subnet["SubnetId"]], subnet["AvailableIpAddressCount"]
        if wanted > free:
            sentence = f"{subnet['SubnetId']} has {free} free addresses, the cluster needs {wanted} there"
            yield problem(SUBJECT, sentence, "choose a larger subnet, or fewer workers")


def _route_table(target: PreflightTarget, subnet: "SubnetTypeDef") -> "RouteTableTypeDef | None":
    """Return the subnet's own route table, or its VPC's main one."""
    pages = target.clients.ec2.get_paginator("describe_route_tables").paginate(Filters=_of_vpc(subnet["VpcId"]))
    tables = [table for page in pages for table in page["RouteTables"]]
    associated = [t for t in tables if any(a.get("SubnetId") == subnet["SubnetId"] for a in t["Associations"])]
    main = [t for t in tables if any(a.get("Main") for a in t["Associations"])]
    return next(iter(associated + main), None)


def _default_route(table: "RouteTableTypeDef | None") -> "RouteTypeDef | None":
    routes = table["Routes"] if table else []
    return next((route for route in routes if route.get("DestinationCidrBlock") == _DEFAULT), None)


def _leads_to_internet(route: "RouteTypeDef | None") -> bool:
    return route is not None and route.get("GatewayId", "").startswith("igw-")


def _blackhole(subnet: "SubnetTypeDef", table: "RouteTableTypeDef | None") -> Iterator[Finding]:
    name = table["RouteTableId"] if table else "no route table"
    yield problem(
        SUBJECT,
        f"the default route of {subnet['SubnetId']} ({name}) leads to a target that no longer exists",
        "give the route a target that exists: aws ec2 replace-route",
    )


def _master_route(target: PreflightTarget, master: "SubnetTypeDef") -> Iterator[Finding]:
    table = _route_table(target, master)
    route = _default_route(table)
    if route is not None and route.get("State") == "blackhole":
        yield from _blackhole(master, table)
    elif not _leads_to_internet(route):
        sentence = f"{master['SubnetId']} has no default route to an internet gateway: nobody could reach the master"
        yield problem(SUBJECT, sentence, "choose a public master_subnet_id")
    else:
        yield from _public_addresses(target, master)


def _public_addresses(target: PreflightTarget, subnet: "SubnetTypeDef") -> Iterator[Finding]:
    """Check for public addresses: behind an internet gateway nodes need one, the master until it has its Elastic IP."""
    name = subnet["SubnetId"]
    if not subnet["MapPublicIpOnLaunch"]:
        yield problem(
            SUBJECT,
            f"{name} leads to an internet gateway and gives its nodes no public addresses: they could reach nothing",
            "choose another subnet, or: "
            f"aws ec2 modify-subnet-attribute --region {target.region} --subnet-id {name} --map-public-ip-on-launch",
        )


def _worker_routes(
    target: PreflightTarget, worker: "SubnetTypeDef", present: "Sequence[VpcEndpointTypeDef]"
) -> Iterator[Finding]:
    """Check that workers reach AWS over a default route, or otherwise over endpoints."""
    table = _route_table(target, worker)
    route = _default_route(table)
    if route is None:
        yield from _endpoints(target, worker, table, (*INTERFACE_SERVICES, *secret_services(target)), present)
    elif route.get("State") == "blackhole":
        yield from _blackhole(worker, table)
    elif _leads_to_internet(route) and target.props.master_subnet != worker["SubnetId"]:
        yield from _public_addresses(target, worker)


def _endpoints(
    target: PreflightTarget,
    worker: "SubnetTypeDef",
    table: "RouteTableTypeDef | None",
    services: Sequence[str],
    present: "Sequence[VpcEndpointTypeDef]",
) -> Iterator[Finding]:
    """Check that the VPC has an endpoint for every service that the subnet's nodes call."""
    if target.props.requirements:
        sentence = f"{worker['SubnetId']} has no default route: nodes reach no PyPI for requirements"
        yield warning(
            SUBJECT, sentence, f"configure a mirror in setup ({WITHOUT_INTERNET}), or give the subnet a NAT gateway"
        )
    vpc_id, table_id = worker["VpcId"], table["RouteTableId"] if table else ""
    by_route = {e["ServiceName"] for e in present if table_id in e.get("RouteTableIds", [])}
    by_name = {e["ServiceName"] for e in present if e.get("PrivateDnsEnabled")}
    create = f"aws ec2 create-vpc-endpoint --region {target.region} --vpc-id {vpc_id}"
    gateway = f"--vpc-endpoint-type Gateway --route-table-ids {table_id}"
    interface = (
        f"--vpc-endpoint-type Interface --private-dns-enabled --subnet-ids {worker['SubnetId']} "
        "--security-group-ids GROUP"
    )
    having: Mapping[str, Sequence[str]] = {"gateway": [*by_route, *by_name], "interface": [*by_name]}
    for kind, options, called in (
        ("gateway", gateway, GATEWAY_SERVICES),
        ("interface", f"{interface}, where GROUP lets port 443 in from {worker['CidrBlock']}", services),
    ):
        for service in called:
            if not any(name.endswith(f".{service}") for name in having[kind]):
                sentence = f"{worker['SubnetId']} has no default route, and {vpc_id} no {kind} endpoint of {service}"
                is_chinese = target.partition == "aws-cn" and service in CHINESE_SERVICES
                prefix = "cn.com.amazonaws" if is_chinese else "com.amazonaws"
                yield problem(
                    SUBJECT, sentence, f"{create} --service-name {prefix}.{target.region}.{service} {options}"
                )


def _closed_endpoints(
    target: PreflightTarget,
    subnet: "SubnetTypeDef",
    services: Sequence[str],
    present: "Sequence[VpcEndpointTypeDef]",
) -> Iterator[Finding]:
    """Check that the security groups of the services' interface endpoints let the subnet's nodes in."""
    wanted = {*GATEWAY_SERVICES, *services}
    endpoints = [e for e in present if e.get("PrivateDnsEnabled") and service_of(e["ServiceName"]) in wanted]
    ids = sorted({group["GroupId"] for endpoint in endpoints for group in endpoint.get("Groups", [])})
    if not ids:
        return
    pages = target.clients.ec2.get_paginator("describe_security_groups").paginate(GroupIds=ids)
    block = IPv4Network(subnet["CidrBlock"])
    opened = {g["GroupId"] for page in pages for g in page["SecurityGroups"] if _lets_in(g, block)}
    for endpoint in endpoints:
        groups = [group["GroupId"] for group in endpoint.get("Groups", [])]
        if groups and not opened.intersection(groups):
            name, service = endpoint["VpcEndpointId"], service_of(endpoint["ServiceName"])
            yield problem(
                SUBJECT,
                f"the endpoint {name} of {service} does not let {subnet['SubnetId']} ({block}) in at port {_HTTPS}",
                f"aws ec2 authorize-security-group-ingress --region {target.region} --group-id {groups[0]} "
                f"--protocol tcp --port {_HTTPS} --cidr {block}",
            )


def _lets_in(group: "SecurityGroupTypeDef", block: IPv4Network) -> bool:
    return any(_permits(permission, group["GroupId"], block) for permission in group["IpPermissions"])


def _permits(permission: "IpPermissionOutputTypeDef", group_id: str, block: IPv4Network) -> bool:
    """Return True if a permission lets a block in at port 443; lists and other groups get the benefit of the doubt."""
    protocol = permission["IpProtocol"]
    in_range = permission.get("FromPort", 0) <= _HTTPS <= permission.get("ToPort", 65535)
    if protocol != "-1" and not (protocol == "tcp" and in_range):
        return False
    others = [pair for pair in permission.get("UserIdGroupPairs", []) if pair.get("GroupId") != group_id]
    blocks = [IPv4Network(each["CidrIp"]) for each in permission.get("IpRanges", [])]
    return bool(others or permission.get("PrefixListIds")) or any(block.subnet_of(each) for each in blocks)


def _name_servers(target: PreflightTarget, vpc_id: str) -> Iterator[Finding]:
    """Check the VPC's DNS attributes: service names need the first, private names of endpoints the second too."""
    ec2 = target.clients.ec2
    support = ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute="enableDnsSupport")["EnableDnsSupport"]
    names = ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute="enableDnsHostnames")["EnableDnsHostnames"]
    for attribute, option, enabled in (
        ("enableDnsSupport", "--enable-dns-support", support.get("Value")),
        ("enableDnsHostnames", "--enable-dns-hostnames", names.get("Value")),
    ):
        if not enabled:
            fix = f"aws ec2 modify-vpc-attribute --region {target.region} --vpc-id {vpc_id} {option}"
            yield problem(SUBJECT, f"{vpc_id} has {attribute} off", fix)
