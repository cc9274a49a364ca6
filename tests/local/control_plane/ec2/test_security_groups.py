"""Test the rules of security groups made by CloudFormation."""

from typing import Any

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import attribute, cluster, reference, resource, ssh_from

EVERYWHERE = {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}
HTTPS = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}


def template(*, egress: list[dict[str, Any]] | None = None, **resources: Any) -> dict[str, Any]:
    """Return a cluster's template with the security group ``Nodes``."""
    nodes = resource("EC2::SecurityGroup", VpcId=reference("Vpc"), GroupDescription="nodes")
    if egress is not None:
        nodes["Properties"]["SecurityGroupEgress"] = egress
    return cluster(Nodes=nodes, **resources)


def rule(direction: str, **properties: Any) -> dict[str, Any]:
    return resource(f"EC2::SecurityGroup{direction}", GroupId=attribute("GroupId", "Nodes"), **properties)


def rules(stacks: Stacks, direction: str) -> list[tuple[str, Any, Any, list[str]]]:
    """Return protocol, ports and peers of each rule of ``Nodes``."""
    ec2 = stacks.aws.client("ec2")
    security_group = ec2.describe_security_groups(GroupIds=[stacks.physical_id("Nodes")])["SecurityGroups"][0]
    return [
        (
            permission["IpProtocol"],
            permission.get("FromPort"),
            permission.get("ToPort"),
            [r["CidrIp"] for r in permission["IpRanges"]]
            + [pair["GroupId"] for pair in permission["UserIdGroupPairs"]],
        )
        for permission in security_group["IpPermissions" if direction == "Ingress" else "IpPermissionsEgress"]
    ]


def test_group_without_egress_rules_allows_all_egress(stacks: Stacks) -> None:
    stacks.create(template())
    assert rules(stacks, "Egress") == [("-1", None, None, ["0.0.0.0/0"])]


def test_inline_egress_rules_are_the_only_ones(stacks: Stacks) -> None:
    stacks.create(template(egress=[HTTPS]))
    assert rules(stacks, "Egress") == [("tcp", 443, 443, ["0.0.0.0/0"])]


def test_separate_egress_rule_replaces_the_default_one(stacks: Stacks) -> None:
    peer = rule("Egress", IpProtocol="-1", DestinationSecurityGroupId=attribute("GroupId", "Security"))
    stacks.create(template(Peer=peer))
    assert rules(stacks, "Egress") == [("-1", None, None, [stacks.physical_id("Security")])]


def test_separate_egress_rule_adds_to_inline_ones(stacks: Stacks) -> None:
    peer = rule("Egress", IpProtocol="-1", DestinationSecurityGroupId=attribute("GroupId", "Nodes"))
    stacks.create(template(egress=[EVERYWHERE], Peer=peer))
    peers = [peer for *_, peers_of_rule in rules(stacks, "Egress") for peer in peers_of_rule]
    assert sorted(peers) == sorted(["0.0.0.0/0", stacks.physical_id("Nodes")])


def test_groups_may_refer_to_each_other(stacks: Stacks) -> None:
    own = rule("Ingress", IpProtocol="-1", SourceSecurityGroupId=attribute("GroupId", "Nodes"))
    other = rule("Ingress", IpProtocol="-1", SourceSecurityGroupId=attribute("GroupId", "Security"))
    stacks.create(template(Own=own, Other=other))
    peers = [peer for *_, peers_of_rule in rules(stacks, "Ingress") for peer in peers_of_rule]
    assert sorted(peers) == sorted([stacks.physical_id("Nodes"), stacks.physical_id("Security")])


def test_separate_rule_is_changed_in_place_and_removed(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template(Ssh=rule("Ingress", **ssh_from("192.0.2.0/24"))))
    assert rules(stacks, "Ingress") == [("tcp", 22, 22, ["192.0.2.0/24"])]
    stacks.update(template(Ssh=rule("Ingress", **ssh_from("198.51.100.0/24"))))
    assert rules(stacks, "Ingress") == [("tcp", 22, 22, ["198.51.100.0/24"])]
    stacks.update(template())
    assert rules(stacks, "Ingress") == []


def test_separate_egress_rule_is_changed_in_place_and_removed(stacks: Stacks) -> None:
    stacks.create(template(egress=[EVERYWHERE], Https=rule("Egress", **HTTPS)))
    stacks.update(template(egress=[EVERYWHERE], Https=rule("Egress", **HTTPS | {"ToPort": 444})))
    assert ("tcp", 443, 444, ["0.0.0.0/0"]) in rules(stacks, "Egress")
    stacks.update(template(egress=[EVERYWHERE]))
    assert rules(stacks, "Egress") == [("-1", None, None, ["0.0.0.0/0"])]
