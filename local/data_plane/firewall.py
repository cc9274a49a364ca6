"""Render security groups, NAT and public addresses as nftables rules for a VPC's router. Pure functions: no I/O."""

from collections.abc import Iterable

from local.network.addresses import API_ADDRESS
from local.node.inventory import Instance, Inventory, SecurityGroup, SecurityGroupRule
from local.storage.mount_targets import MountTarget


def _set(name: str, addresses: Iterable[str]) -> str:
    members = ", ".join(sorted(addresses))
    elements = f" elements = {{ {members} }};" if members else ""
    return f"  set {name} {{ type ipv4_addr;{elements} }}"


def _set_name(group_id: str) -> str:
    return "members_" + group_id.replace("-", "_")


def _ports(rule: SecurityGroupRule) -> str:
    if rule.protocol == "-1":
        return ""
    if rule.protocol in ("tcp", "udp"):
        return f"{rule.protocol} dport {rule.from_port}-{rule.to_port} "
    return f"ip protocol {rule.protocol} "


def _permissions(rules: Iterable[SecurityGroupRule], *, member: str, peer: str, own_set: str) -> list[str]:
    """Render lines that return (permit) what a group's rules allow; ``member`` and ``peer`` are saddr and daddr."""
    lines = []
    for rule in rules:
        peers = [*rule.cidrs, *(f"@{_set_name(group)}" for group in rule.group_ids)]
        lines += [f"    ip {member} @{own_set} ip {peer} {match} {_ports(rule)}return" for match in peers]
    return lines


def _nat(instances: Iterable[Instance], endpoint_source: str | None) -> list[str]:
    inbound, outbound = [], []
    for instance in instances:
        # The gateway translates addresses only for subnets with a route to it.
        if instance.public_address and instance.public_address == instance.internet_address:
            inbound.append(f"    iifname igw ip daddr {instance.public_address} dnat ip to {instance.address.ip}")
        if source := instance.internet_address or endpoint_source:
            outbound.append(f"    oifname igw ip saddr {instance.address.ip} snat ip to {source}")
    return [
        "  chain inbound { type nat hook prerouting priority -100;", *inbound, "  }",
        "  chain outbound { type nat hook postrouting priority 100;", *outbound, "  }",
    ]  # fmt: skip


def _addresses_by_group(
    groups: Iterable[SecurityGroup], instances: Iterable[Instance], targets: Iterable[MountTarget]
) -> dict[str, list[str]]:
    members: dict[str, list[str]] = {group.group_id: [] for group in groups}
    for instance in instances:
        for group_id in instance.group_ids:
            members.setdefault(group_id, []).append(str(instance.address.ip))
    for target in targets:
        for group_id in target.group_ids:
            members.setdefault(group_id, []).append(target.address)
    return members


def _chain(name: str, groups: Iterable[SecurityGroup]) -> list[str]:
    lines = [f"  chain {name} {{"]
    for group in groups:
        own_set = _set_name(group.group_id)
        if name == "egress":
            lines += _permissions(group.egress, member="saddr", peer="daddr", own_set=own_set)
        else:
            lines += _permissions(group.ingress, member="daddr", peer="saddr", own_set=own_set)
    return [*lines, "    drop", "  }"]


def render_rules(inventory: Inventory, vpc_id: str, *, endpoint_source: str | None = None) -> str:
    """Render the whole firewall of a VPC, for one transaction.

    A packet passes when its sender's groups let it out and its receiver's groups let it in; answers pass always
    (security groups are stateful). A node without a route to the internet cannot leave the VPC. If the VPC has
    endpoints, every node reaches AWS's API, one without a route from ``endpoint_source``, and
    control_plane/vpc_endpoints.py judges by service whether routes and security groups let the call out.
    """
    instances = [instance for instance in inventory.instances if instance.vpc_id == vpc_id]
    groups = [group for group in inventory.security_groups if group.vpc_id == vpc_id]
    everyone = [str(i.address.ip) for i in instances]
    targets = [target for target in inventory.mount_targets if target.vpc_id == vpc_id]
    connected = [str(i.address.ip) for i in instances if i.internet_address]
    lines = [
        "table inet vpc",
        "delete table inet vpc",
        "table inet vpc {",
        _set("nodes", everyone),
        _set("connected", connected),
        _set("mount_targets", {target.address for target in targets}),
        *(
            _set(_set_name(g), addresses)
            for g, addresses in sorted(_addresses_by_group(groups, instances, targets).items())
        ),
        *_chain("egress", groups),
        *_chain("ingress", groups),
        "  chain forward { type filter hook forward priority 0; policy drop;",
        "    ct state established,related accept",
        *([f"    ip saddr @nodes ip daddr {API_ADDRESS} meta l4proto tcp accept"] if endpoint_source else []),
        "    ip saddr @nodes jump egress",
        "    ip daddr @nodes jump ingress",
        "    ip saddr @nodes oifname igw ip saddr != @connected drop",
        "    ip saddr @nodes accept",
        "    ip daddr @nodes accept",
        "  }",
        # The router itself serves the mount targets, and Lustre's servers connect to the nodes too.
        "  chain mounts { type filter hook input priority 0; policy accept;",
        "    ct state established,related accept",
        "    ip daddr @mount_targets ip saddr @nodes jump egress",
        "    ip daddr @mount_targets jump ingress",
        "  }",
        "  chain servers { type filter hook output priority 0; policy accept;",
        "    ct state established,related accept",
        "    ip saddr @mount_targets ip daddr @nodes jump egress",
        "    ip saddr @mount_targets ip daddr @nodes jump ingress",
        "  }",
        *_nat(instances, endpoint_source),
        "}",
    ]
    return "\n".join(lines) + "\n"
