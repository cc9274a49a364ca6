"""Test the addresses to which nodes may connect outside their cluster."""

import re
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.network import MAX_EGRESS
from stacks.settings.props import ClusterProps
from tests.stacks.synthesis import Synthesize
from tests.stacks.template_parts import logical_id, resources

BLOCK, PREFIX_LIST = "10.8.0.0/16", "pl-63a5400a"
MAX_RULES = 60
"""Outbound rules of a security group by default ("Amazon VPC quotas")."""
Rule = tuple[str, str, int, int]
"""Peer, protocol, and the first and the last port."""


def outbound(template: dict[str, Any], group: str) -> list[dict[str, Any]]:
    """Return the group's outbound rules, inline and separate ones."""
    name = logical_id(template, "AWS::EC2::SecurityGroup", group)
    separate = (rule["Properties"] for rule in resources(template, "AWS::EC2::SecurityGroupEgress"))
    inline = template["Resources"][name]["Properties"].get("SecurityGroupEgress", [])
    return [*inline, *(rule for rule in separate if rule["GroupId"]["Fn::GetAtt"][0] == name)]


def to_addresses(rules: list[dict[str, Any]]) -> set[Rule]:
    """Return the rules that name addresses, not groups."""
    peers = [(rule.get("CidrIp") or rule.get("DestinationPrefixListId"), rule) for rule in rules]
    return {(peer, rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for peer, rule in peers if peer}


def to_all_ports(*peers: str) -> set[Rule]:
    return {(peer, protocol, 0, 65535) for peer in peers for protocol in ("tcp", "udp")}


@pytest.mark.parametrize("group", ["Master", "Worker"])
def test_nodes_connect_to_the_named_addresses_alone(
    synthesize: Synthesize, template: dict[str, Any], group: str
) -> None:
    assert to_addresses(outbound(template, group)) == to_all_ports("0.0.0.0/0")
    limited = synthesize(egress=(BLOCK, PREFIX_LIST), shared_storage="efs")
    assert to_addresses(outbound(limited, group)) == to_all_ports(BLOCK, PREFIX_LIST)
    storage = logical_id(limited, "AWS::EC2::SecurityGroup", "SharedStorage")
    [nfs] = [
        rule
        for rule in outbound(limited, group)
        if rule.get("DestinationSecurityGroupId") == {"Fn::GetAtt": [storage, "GroupId"]}
    ]
    assert (nfs["IpProtocol"], nfs["FromPort"], nfs["ToPort"]) == ("tcp", 2049, 2049)


def test_nodes_start_after_the_rules_that_let_them_out(synthesize: Synthesize) -> None:
    limited = synthesize(egress=(PREFIX_LIST,), shared_storage="efs")
    rules = {name for name, r in limited["Resources"].items() if r["Type"] == "AWS::EC2::SecurityGroupEgress"}
    for group in resources(limited, "AWS::AutoScaling::AutoScalingGroup"):
        assert rules <= {*group["DependsOn"]}


def test_largest_list_fits_into_a_group(synthesize: Synthesize) -> None:
    largest = synthesize(egress=tuple(f"10.8.{n}.0/24" for n in range(MAX_EGRESS)), shared_storage="efs")
    for group in ("Master", "Worker"):
        assert MAX_RULES - 2 < len(outbound(largest, group)) <= MAX_RULES


def test_own_network_warns_of_what_may_be_missing() -> None:
    existing = {"vpc_id": "vpc-01234567", "subnet_id": "subnet-01234567"}
    assert "egress" not in ClusterProps().warnings()
    assert "egress" not in ClusterProps.from_context({"egress": BLOCK, **existing}).warnings(), "preflight checks it"
    warning = ClusterProps.from_context({"egress": [BLOCK, PREFIX_LIST]}).warnings()["egress"]
    assert warning.startswith(f"egress {BLOCK},{PREFIX_LIST} may keep nodes from AWS")
    assert "prefix lists of S3 and DynamoDB" in warning


@pytest.mark.parametrize(
    ("egress", "message"),
    [
        ("10.8.0.0/16,home", "egress must be IPv4 blocks and prefix lists, pl- and 8 or 17 hex digits, got 'home'"),
        (["10.8.0.0/16", "pl-s3"], "egress must be IPv4 blocks and prefix lists, pl- and .*, got 'pl-s3'"),
        ("10.8.0.1/16", "egress must be an IPv4 block, got '10.8.0.1/16', did you mean 10.8.0.0/16[?]"),
        ("::/0", "egress must be IPv4 blocks and prefix lists, .*, got '::/0'"),
        ([7], "egress must be text, got 7"),
        ([], "egress must be 1 to 28 blocks and prefix lists, got 0"),
        ([f"10.8.{n}.0/24" for n in range(29)], "egress must be 1 to 28 blocks and prefix lists, got 29"),
    ],
)
def test_bad_value_is_one_line(egress: Any, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        ClusterProps.from_context({"egress": egress})
    assert re.fullmatch(message, str(error.value))


@pytest.mark.parametrize(
    ("egress", "entries"),
    [(f"{BLOCK}, {PREFIX_LIST}", (BLOCK, PREFIX_LIST)), ([BLOCK, BLOCK], (BLOCK,)), ("", ("0.0.0.0/0",))],
)
def test_text_and_list_mean_the_same(egress: Any, entries: tuple[str, ...]) -> None:
    assert ClusterProps.from_context({"egress": egress}).egress == entries
