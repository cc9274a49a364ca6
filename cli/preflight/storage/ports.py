"""Find ports that no security group of a file system opens to the nodes' subnets, and the command that opens them."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any, Final

from cli.preflight.finding import Finding, problem
from cli.preflight.target import PreflightTarget

SUBJECT: Final = "shared storage"
Ports = Sequence[tuple[int, int]]
"""Ranges of TCP ports, first and last."""
_WAYS: Final[Mapping[str, tuple[str, str]]] = {
    "ingress": ("IpPermissions", "in from"),
    "egress": ("IpPermissionsEgress", "out to"),
}


def node_subnets(target: PreflightTarget) -> tuple[str, list[str]]:
    """Return the zone of the nodes and the address blocks of their subnets."""
    wanted = [name for name in (target.props.subnet_id, target.props.master_subnet) if name is not None]
    subnets = target.clients.ec2.describe_subnets(SubnetIds=[*dict.fromkeys(wanted)])["Subnets"]
    return subnets[0]["AvailabilityZone"], sorted({subnet["CidrBlock"] for subnet in subnets})


def closed_ports(
    target: PreflightTarget,
    file_system: str,
    groups: Sequence[str],
    ports: Ports,
    cidrs: Sequence[str],
    *,
    both_ways: bool = False,
) -> Iterator[Finding]:
    """Find the nodes' blocks that no group lets in or out to; rules that name other groups admit no new node."""
    if not groups:
        return
    found: Any = target.clients.ec2.describe_security_groups(GroupIds=[*groups])["SecurityGroups"]
    for way in _WAYS if both_ways else ("ingress",):
        name, words = _WAYS[way]
        rules: list[Any] = [rule for group in found for rule in group.get(name, [])]
        closed = {span: [cidr for cidr in cidrs if not _is_open(rules, span, cidr)] for span in ports}
        closed = {span: blocks for span, blocks in closed.items() if blocks}
        if closed:
            blocks = sorted({cidr for each in closed.values() for cidr in each})
            spans = " and ".join(_shown(span) for span in closed)
            sentence = f"no security group of {file_system} ({', '.join(groups)}) lets port {spans} {words}"
            yield problem(SUBJECT, f"{sentence} {' and '.join(blocks)}", _command(target, way, groups[0], closed))


def _is_open(rules: Sequence[Mapping[str, Any]], span: tuple[int, int], cidr: str) -> bool:
    first, last = span
    return all(any(_covers(rule, port, cidr) for rule in rules) for port in range(first, last + 1))


def _covers(rule: Mapping[str, Any], port: int, cidr: str) -> bool:
    protocol = rule["IpProtocol"]
    has_port = protocol == "-1" or (protocol == "tcp" and rule["FromPort"] <= port <= rule["ToPort"])
    return has_port and any(
        IPv4Network(cidr).subnet_of(IPv4Network(each["CidrIp"], strict=False)) for each in rule.get("IpRanges", [])
    )


def _command(target: PreflightTarget, way: str, group: str, closed: Mapping[tuple[int, int], Sequence[str]]) -> str:
    """Return one command that opens everything closed; AWS refuses the complete command if one of its rules exists."""
    permissions = " ".join(
        f"'IpProtocol=tcp,FromPort={first},ToPort={last},IpRanges=["
        + ",".join(f"{{CidrIp={cidr}}}" for cidr in blocks)
        + "]'"
        for (first, last), blocks in closed.items()
    )
    authorize = f"aws ec2 authorize-security-group-{way} --region {target.region} --group-id {group}"
    return f"{authorize} --ip-permissions {permissions}"


def _shown(span: tuple[int, int]) -> str:
    first, last = span
    return f"{first}" if first == last else f"{first} to {last}"
