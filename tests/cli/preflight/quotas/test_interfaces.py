"""Compare the nodes' interfaces with the quota of the region: a node with 32 cards takes 32 of them."""

from typing import Any

import pytest

from cli.preflight.quotas.interfaces import check_interface_quota
from tests.cli.preflight.stubbed_account import NEW_STACK, Account, Quota


@pytest.mark.parametrize(("allowed", "level"), [(33 + 4 * 33 + 1 + 2, "ok"), (33 + 4 * 33 + 2, "problem")])
def test_every_card_of_every_node_counts_beside_other_interfaces(
    account: Account, quota: Quota, allowed: int, level: str
) -> None:
    account.settings |= {"instance_type": "p5.48xlarge", "worker_count": 4, "private": True}
    instance: dict[str, Any] = {"InstanceId": "i-00000000000000001"}
    account.answers("ec2", "describe_instances", {"Reservations": [{"Instances": [instance]}]})
    found: list[dict[str, Any]] = [{"Attachment": instance}, {"Attachment": {"InstanceId": "i-2"}}]
    account.answers("ec2", "describe_network_interfaces", {"NetworkInterfaces": found, "NextToken": "more"}, {})
    account.answers("ec2", "describe_network_interfaces", {"NetworkInterfaces": [{}]}, {"NextToken": "more"})
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    quota("vpc", "L-DF5E4CA3", allowed)
    finding = account.finds(check_interface_quota)
    needed = f"the cluster needs {33 + 4 * 33 + 1}; Network interfaces per Region: {allowed}, 2 in use"
    assert (finding.level, finding.sentence) == (level, needed)
