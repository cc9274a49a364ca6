"""Test vCPU quotas: EC2 refuses launches beyond them, and Service Quotas reports them."""

from typing import Any

from cli.preflight.quotas.service_quotas import vcpu_quota
from local.control_plane.limits.limit_files import QUOTAS
from tests.local.control_plane.harness import AccountLimits, Aws, Group, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template

SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


def failures(aws: Aws, stacks: Stacks, size: int, **data: Any) -> tuple[int, list[str]]:
    """Create a group; return its number of members and why others failed, each reason once: the group tries again."""
    template = cluster(Group=group(size))
    template["Resources"]["Template"] = launch_template(**data)
    stacks.create(template)
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    answer = asg.autoscaling.describe_scaling_activities(AutoScalingGroupName=asg.name)
    failed = {activity["StatusMessage"] for activity in answer["Activities"] if activity["StatusCode"] == "Failed"}
    return len(asg.in_service()), sorted(failed)


def test_vcpus_beyond_the_quota_are_refused(aws: Aws, stacks: Stacks, limits: AccountLimits) -> None:
    limits.set_quotas(standard=5, p=0)
    running, (why,) = failures(aws, stacks, 3)
    assert running == 2
    assert why.startswith("You have requested more vCPU capacity than your current vCPU limit of 5 allows for the")


def test_spot_has_a_quota_of_its_own(aws: Aws, stacks: Stacks, limits: AccountLimits) -> None:
    limits.set_quotas(standard=0, spot_standard=2)
    assert failures(aws, stacks, 2, **SPOT) == (1, ["Max spot instance count exceeded. Launching EC2 instance failed."])


def test_quota_is_answered_to_the_call_of_preflight(aws: Aws, limits: AccountLimits) -> None:
    limits.set_quotas(p=192)
    quota = vcpu_quota("p5.48xlarge")
    assert quota
    answer = aws.client("service-quotas").get_service_quota(ServiceCode=quota.service, QuotaCode=quota.code)
    assert (answer["Quota"]["Value"], answer["Quota"]["QuotaName"]) == (192, quota.name)


def test_quotas_have_the_codes_of_the_product() -> None:
    types = {"standard": "c5.large", "g": "gr6.4xlarge", "p": "p5.48xlarge"}
    for name, instance_type in types.items():
        for spot in (False, True):
            quota = vcpu_quota(instance_type, is_spot=spot)
            own = QUOTAS[f"spot-{name}" if spot else name]
            assert quota
            assert (quota.code, quota.name) == (own.code, own.title)
