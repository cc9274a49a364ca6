"""Test the check of the vCPU quotas."""

from typing import Any

import pytest

from cli.preflight.quotas import capacity
from tests.cli.preflight.stubbed_account import Account, Quota

G, P, STANDARD = "L-DB2E81BA", "L-417A185B", "L-1216C47A"


def runs(account: Account, *pages: list[dict[str, Any]]) -> None:
    expected: dict[str, Any] = {"Filters": [{"Name": "instance-state-name", "Values": ["pending", "running"]}]}
    for number, instances in enumerate(pages):
        more = {} if number + 1 == len(pages) else {"NextToken": str(number)}
        account.answers("ec2", "describe_instances", {"Reservations": [{"Instances": instances}], **more}, expected)
        expected = {**expected, **more}


@pytest.mark.parametrize(("allowed", "level"), [(8.0, "ok"), (7.0, "problem"), (0.0, "problem")])
def test_quota_must_hold_every_node(account: Account, quota: Quota, allowed: float, level: str) -> None:
    quota("ec2", G, allowed)
    runs(account, [])
    found = account.finds(capacity.check_vcpu_quota)
    message = "2 x g6.xlarge are 8 vCPUs; Running On-Demand G and VT instances: "
    assert (found.level, found.sentence) == (level, f"{message}{allowed:.0f}, 0 in use")


def test_master_of_another_family_counts_against_another_quota(account: Account, quota: Quota) -> None:
    account.settings["master_instance_type"] = "m7i.xlarge"
    for code, allowed in ((G, 4), (STANDARD, 3)):
        quota("ec2", code, allowed)
        runs(account, [])
    found = account.check(capacity.check_vcpu_quota)
    assert [(finding.level, finding.sentence.partition(";")[0]) for finding in found] == [
        ("ok", "1 x g6.xlarge are 4 vCPUs"),
        ("problem", "1 x m7i.xlarge are 4 vCPUs"),
    ]


def test_quota_shortage_is_reported_with_the_request_command(account: Account, quota: Quota) -> None:
    quota("ec2", G, 0)
    runs(account, [])
    fix = account.finds(capacity.check_vcpu_quota).fix
    assert "https://eu-west-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-DB2E81BA" in fix
    assert fix.endswith(
        "aws service-quotas request-service-quota-increase --region eu-west-1 "
        "--service-code ec2 --quota-code L-DB2E81BA --desired-value 8"
    )


def test_running_instances_of_the_family_are_subtracted(account: Account, quota: Quota) -> None:
    quota("ec2", G, 30)
    runs(
        account,
        [{"InstanceType": "g5.2xlarge", "CpuOptions": {"CoreCount": 4, "ThreadsPerCore": 2}}],
        [
            {"InstanceType": "g4dn.4xlarge"},
            {"InstanceType": "c7i.48xlarge"},
            {"InstanceType": "p5.48xlarge"},
            {"InstanceType": "g6.48xlarge", "InstanceLifecycle": "spot"},
            {"InstanceType": "g6.48xlarge", "Tags": [{"Key": "deeplearning:cluster", "Value": "demo"}]},
        ],
    )
    found = account.finds(capacity.check_vcpu_quota)
    assert found.sentence.endswith(": 30, 24 in use")
    assert found.level == "problem"
    assert found.fix.endswith("--desired-value 32")


@pytest.mark.parametrize(
    ("instance_type", "code"),
    [("g4dn.xlarge", G), ("p4d.24xlarge", P), ("p6-b200.48xlarge", P), ("c7i.large", STANDARD), ("t3.micro", STANDARD)],
)
def test_each_family_has_its_quota(account: Account, quota: Quota, instance_type: str, code: str) -> None:
    account.settings |= {"instance_type": instance_type, "efa": "off"}
    quota("ec2", code, 5000)
    runs(account, [])
    assert account.finds(capacity.check_vcpu_quota).level == "ok"


def test_type_outside_the_catalog_is_described_by_ec2(account: Account, quota: Quota) -> None:
    account.settings |= {"instance_type": "g9.xlarge", "ami": "ami-0123456789abcdef0"}
    account.answers("ec2", "describe_instance_types", {"InstanceTypes": [{"VCpuInfo": {"DefaultVCpus": 6}}]})
    quota("ec2", G, 11)
    runs(account, [])
    found = account.finds(capacity.check_vcpu_quota)
    assert (found.level, found.sentence[:28]) == ("problem", "2 x g9.xlarge are 12 vCPUs; ")


def test_family_without_a_known_quota_is_reported(account: Account) -> None:
    account.settings |= {"instance_type": "zz9.xlarge", "ami": "ami-0123456789abcdef0"}
    assert str(account.finds(capacity.check_vcpu_quota)).endswith("could not check: no quota is known for zz9.xlarge")


def test_account_without_an_own_quota_uses_the_default(account: Account) -> None:
    expected = {"ServiceCode": "ec2", "QuotaCode": G}
    account.refuses("service_quotas", "get_service_quota", "NoSuchResourceException", expected)
    account.answers("service_quotas", "get_aws_default_service_quota", {"Quota": {"Value": 0.0}}, expected)
    runs(account, [])
    assert account.finds(capacity.check_vcpu_quota).level == "problem"


def test_spot_workers_have_a_quota_of_their_own(account: Account, quota: Quota) -> None:
    account.settings |= {"purchase": "spot", "worker_count": 3}
    quota("ec2", G, 4)
    runs(account, [{"InstanceType": "g6.48xlarge", "InstanceLifecycle": "spot"}])
    quota("ec2", "L-3819A6DF", 12)
    runs(account, [{"InstanceType": "g6.xlarge", "InstanceLifecycle": "spot", "CpuOptions": {"CoreCount": 2}}])
    on_demand, spot = account.check(capacity.check_vcpu_quota)
    assert (on_demand.level, on_demand.sentence[:24]) == ("ok", "1 x g6.xlarge are 4 vCPU")
    assert spot.level == "problem"
    assert spot.sentence.endswith("; All G and VT Spot Instance Requests: 12, 2 in use")
