"""Test that security groups admit the entries of a prefix list."""

import re
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ec2.prefix_lists import MODIFY_S
from local.node.inventory import read_inventory
from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import attribute, cluster, resource
from tests.waiting import wait_until

OFFICE, HOME = "203.0.113.0/24", "198.51.100.9/32"


def template(**properties: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"PrefixListName": "allowed", "AddressFamily": "IPv4", "MaxEntries": 2}
    made = resource("EC2::PrefixList", **given | properties)
    rule = resource(
        "EC2::SecurityGroupIngress",
        GroupId=attribute("GroupId", "Security"),
        IpProtocol="tcp",
        FromPort=22,
        ToPort=22,
        SourcePrefixListId=attribute("PrefixListId", "Allowed"),
    )
    return cluster(Allowed=made, Rule=rule)


def modify(aws: Aws, list_id: str, version: int | None = None, *, add: Any = (), remove: Any = ()) -> None:
    """Change the list, and wait until another change may follow."""
    ec2 = aws.client("ec2")
    given = {} if version is None else {"CurrentVersion": version}
    ec2.modify_managed_prefix_list(
        PrefixListId=list_id,
        AddEntries=[{"Cidr": cidr, "Description": "mine"} for cidr in add],
        RemoveEntries=[{"Cidr": cidr} for cidr in remove],
        **given,
    )
    wait_until_settled(aws, list_id)


def wait_until_settled(aws: Aws, list_id: str) -> None:
    wait_until(lambda: described(aws, list_id)["State"] == "modify-complete", "the change", timeout_s=60, every_s=0.1)


def described(aws: Aws, list_id: str) -> Any:
    return aws.client("ec2").describe_managed_prefix_lists(PrefixListIds=[list_id])["PrefixLists"][0]


def blocks(aws: Aws, list_id: str) -> list[str]:
    entries = aws.client("ec2").get_managed_prefix_list_entries(PrefixListId=list_id)["Entries"]
    return [entry["Cidr"] for entry in entries]


def ssh_blocks(aws: Aws, group_id: str) -> tuple[str, ...]:
    """Return the blocks from which the firewall admits traffic to port 22 of the group's members."""
    groups = read_inventory(aws.client("ec2"), aws.client("autoscaling")).security_groups
    [ingress] = [group.ingress for group in groups if group.group_id == group_id]
    return tuple(cidr for rule in ingress if rule.from_port == 22 for cidr in rule.cidrs)


def test_rules_admit_the_list_and_deploys_keep_it(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template())
    list_id, group_id = stacks.physical_id("Allowed"), stacks.physical_id("Security")
    own = "192.0.2.0/24"
    assert ssh_blocks(aws, group_id) == (own,)
    modify(aws, list_id, 1, add=[OFFICE, HOME])
    assert ssh_blocks(aws, group_id) == (own, HOME, OFFICE)
    stacks.update(template(PrefixListName="renamed", Tags=[{"Key": "team", "Value": "vision"}]))
    assert stacks.physical_id("Allowed") == list_id
    assert (described(aws, list_id)["PrefixListName"], blocks(aws, list_id)) == ("renamed", [OFFICE, HOME])
    modify(aws, list_id, 2, remove=[OFFICE])
    assert ssh_blocks(aws, group_id) == (own, HOME)
    stacks.update(cluster())
    with pytest.raises(ClientError, match=r"InvalidPrefixListID\.NotFound"):
        described(aws, list_id)


@pytest.mark.parametrize(
    ("version", "add", "remove", "message"),
    [
        (1, [HOME], [], r"PrefixListVersionMismatch.* The prefix list has the incorrect version number"),
        (2, [OFFICE], [], r"InvalidPrefixListModification.* An entry with the CIDR \(203.0.113.0/24\) .*exists"),
        (2, [], [HOME], r"InvalidPrefixListModification.* does not exist"),
        (2, [OFFICE], [OFFICE], "InvalidParameterValue.* Request cannot contain Cidr 203.0.113.0/24 in both Add"),
        (2, [HOME, "192.0.2.1/32"], [], "PrefixListMaxEntriesExceeded"),
    ],
    ids=["version", "twice", "absent", "both", "full"],
)
def test_bad_change_is_refused_with_ec2s_message(
    aws: Aws, stacks: Stacks, version: int, add: list[str], remove: list[str], message: str
) -> None:
    stacks.create(template())
    list_id = stacks.physical_id("Allowed")
    modify(aws, list_id, 1, add=[OFFICE])
    with pytest.raises(ClientError, match=message):
        modify(aws, list_id, version, add=add, remove=remove)
    assert blocks(aws, list_id) == [OFFICE]


def test_change_during_another_one_is_refused(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template())
    list_id, ec2 = stacks.physical_id("Allowed"), aws.client("ec2")
    for _ in range(20):
        begun, refusal = time.monotonic(), ""
        ec2.modify_managed_prefix_list(PrefixListId=list_id, AddEntries=[{"Cidr": HOME}])
        state = described(aws, list_id)["State"]
        try:
            ec2.modify_managed_prefix_list(PrefixListId=list_id, RemoveEntries=[{"Cidr": HOME}])
        except ClientError as error:
            refusal = str(error)
        if time.monotonic() - begun < MODIFY_S:
            break
        # The first change may have been over, so try again.
        wait_until_settled(aws, list_id)
        if HOME in blocks(aws, list_id):
            modify(aws, list_id, remove=[HOME])
    assert state == "modify-in-progress"
    assert re.search(r"IncorrectState.*in the current state \(modify-in-progress\)", refusal)
