"""Test the check of the quota of EBS storage."""

from typing import Any

import pytest

from cli.preflight.quotas.volumes import check_volume_quota
from tests.cli.preflight.stubbed_account import Account, Quota

GP3 = "L-7A658B76"


def holds(account: Account, *pages: list[dict[str, Any]], own: str | None = None) -> None:
    """Describe the account's gp3 volumes, and an instance of the cluster if it is deployed."""
    instances = [{"InstanceId": own}] if own else []
    of_cluster = {"Filters": [{"Name": "tag:deeplearning:cluster", "Values": ["demo"]}]}
    account.answers("ec2", "describe_instances", {"Reservations": [{"Instances": instances}]}, of_cluster)
    expected: dict[str, Any] = {"Filters": [{"Name": "volume-type", "Values": ["gp3"]}]}
    for number, volumes in enumerate(pages):
        more = {} if number + 1 == len(pages) else {"NextToken": str(number)}
        account.answers("ec2", "describe_volumes", {"Volumes": volumes, **more}, expected)
        expected = {**expected, **more}


@pytest.mark.parametrize(
    ("tib", "level"), [(50.0, "ok"), (2.0, "ok"), (1.96, "problem"), (1.5, "problem"), (0.25, "problem")]
)
def test_quota_must_hold_every_nodes_disk(account: Account, quota: Quota, tib: float, level: str) -> None:
    account.settings |= {"worker_count": 3, "root_volume_gib": 500}
    holds(account, [{"Size": 40}], [{"Size": 8}])
    quota("ebs", GP3, tib)
    found = account.finds(check_volume_quota)
    assert (found.level, found.sentence) == (
        level,
        f"4 x 500 GiB are 2000 GiB; Storage for General Purpose SSD (gp3) volumes, in TiB: {tib:g}, 48 GiB in use",
    )
    if level == "problem":
        assert found.fix.startswith("set a smaller root_volume_gib, or ask for 2 in the console")
        assert found.fix.endswith(f"--service-code ebs --quota-code {GP3} --desired-value 2")


def test_clusters_own_disks_are_not_counted_twice(account: Account, quota: Quota) -> None:
    attached = {"Attachments": [{"InstanceId": "i-0123456789abcdef0"}]}
    holds(account, [{"Size": 150, **attached}, {"Size": 7, "Attachments": []}], own="i-0123456789abcdef0")
    quota("ebs", GP3, 1)
    assert account.finds(check_volume_quota).sentence.endswith(": 1, 7 GiB in use")
