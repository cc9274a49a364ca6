"""Test the check of a cluster's EFA interfaces."""

import pytest

from cli.preflight.nodes.efa import check_efa
from tests.cli.preflight.stubbed_account import Account


@pytest.mark.parametrize(("has", "level"), [(4, "ok"), (1, "problem"), (None, "problem")])
def test_interfaces_stay_within_the_types_limit(account: Account, has: int | None, level: str) -> None:
    account.settings |= {"instance_type": "p4d.24xlarge", "private": True}
    types = [] if has is None else [{"NetworkInfo": {"EfaInfo": {"MaximumEfaInterfaces": has}}}]
    expected = {"Filters": [{"Name": "instance-type", "Values": ["p4d.24xlarge"]}]}
    account.answers("ec2", "describe_instance_types", {"InstanceTypes": types}, expected)
    found = account.finds(check_efa)
    assert found.level == level
    assert "4 EFA interfaces" in found.sentence


def test_public_master_with_several_interfaces_is_a_problem(account: Account) -> None:
    account.settings |= {"instance_type": "p4d.24xlarge"}
    found = account.finds(check_efa)
    assert found.level == "problem"
    assert found.sentence.endswith("4 interfaces with EFA, and AWS gives such a node no public address")


@pytest.mark.parametrize("settings", [{}, {"instance_type": "p4d.24xlarge", "efa": "off"}])
def test_cluster_without_efa_makes_no_call(account: Account, settings: dict[str, str]) -> None:
    account.settings |= settings
    assert account.check(check_efa) == []
