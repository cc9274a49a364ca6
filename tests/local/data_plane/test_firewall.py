"""Test the firewall rules made of security groups."""

import dataclasses

import pytest

from local.data_plane.firewall import render_rules
from local.network.addresses import API_ADDRESS
from local.node.inventory import Inventory, SecurityGroup, SecurityGroupRule
from tests.local.instances import instance

ANY = SecurityGroupRule(protocol="-1", from_port=0, to_port=65535, cidrs=("0.0.0.0/0",), group_ids=())


@pytest.fixture
def rules() -> str:
    ssh = SecurityGroupRule(protocol="tcp", from_port=22, to_port=22, cidrs=("203.0.113.0/24",), group_ids=())
    members = SecurityGroupRule(protocol="-1", from_port=0, to_port=65535, cidrs=(), group_ids=("sg-2",))
    master = instance(4, groups=("sg-1", "sg-2"), public="198.18.0.4", internet="198.18.0.4")
    worker = instance(5, groups=("sg-2",), public=None, internet="198.18.0.9")
    lonely = instance(6, groups=("sg-2",), public="198.18.0.6", internet=None)
    groups = (
        SecurityGroup(group_id="sg-1", vpc_id="vpc-1", ingress=(ssh,), egress=(ANY,)),
        SecurityGroup(group_id="sg-2", vpc_id="vpc-1", ingress=(members,), egress=(ANY,)),
    )
    return render_rules(Inventory(instances=(master, worker, lonely), security_groups=groups), "vpc-1")


def test_permissions_name_members_peers_and_ports(rules: str) -> None:
    assert "ip daddr @members_sg_1 ip saddr 203.0.113.0/24 tcp dport 22-22 return" in rules
    assert "ip daddr @members_sg_2 ip saddr @members_sg_2 return" in rules
    assert "set members_sg_1 { type ipv4_addr; elements = { 10.0.0.4 }; }" in rules


def test_everything_else_is_dropped(rules: str) -> None:
    for chain in ("egress", "ingress"):
        body = rules.split(f"chain {chain} {{")[1].split("}")[0]
        assert body.strip().endswith("drop")
    assert "priority 0; policy drop;" in rules


def test_public_address_leads_to_its_instance_and_workers_leave_through_the_nat_gateway(rules: str) -> None:
    assert "iifname igw ip daddr 198.18.0.4 dnat ip to 10.0.0.4" in rules
    assert "oifname igw ip saddr 10.0.0.4 snat ip to 198.18.0.4" in rules
    assert "oifname igw ip saddr 10.0.0.5 snat ip to 198.18.0.9" in rules
    assert "10.0.0.6 snat" not in rules
    assert "198.18.0.6" not in rules, "no route leads from the gateway to this subnet"


def test_node_without_a_route_cannot_leave(rules: str) -> None:
    assert "set connected { type ipv4_addr; elements = { 10.0.0.4, 10.0.0.5 }; }" in rules
    assert "ip saddr @nodes oifname igw ip saddr != @connected drop" in rules


def test_node_without_a_route_reaches_the_api_alone_where_its_vpc_has_endpoints() -> None:
    lonely = instance(6, groups=("sg-2",), public="198.18.0.6", internet=None)
    rules = render_rules(Inventory(instances=(lonely,), security_groups=()), "vpc-1", endpoint_source="192.0.2.129")
    allowed = f"ip saddr @nodes ip daddr {API_ADDRESS} meta l4proto tcp accept"
    assert rules.index(allowed) < rules.index("jump egress") < rules.index("ip saddr != @connected drop")
    assert "oifname igw ip saddr 10.0.0.6 snat ip to 192.0.2.129" in rules


def test_firewall_has_no_rules_of_another_vpc() -> None:
    own = instance(4, groups=("sg-1",), public="198.18.0.4", internet="198.18.0.4")
    twin = dataclasses.replace(own, vpc_id="vpc-2", group_ids=("sg-2",), public_address=None, internet_address=None)
    groups = tuple(
        SecurityGroup(group_id=f"sg-{number}", vpc_id=f"vpc-{number}", ingress=(ANY,), egress=(ANY,))
        for number in (1, 2)
    )
    both = Inventory(instances=(own, twin), security_groups=groups)
    assert render_rules(both, "vpc-1") == render_rules(Inventory(instances=(own,), security_groups=groups[:1]), "vpc-1")
    assert "sg_2" not in render_rules(both, "vpc-1")
    assert "198.18.0.4" not in render_rules(both, "vpc-2")
