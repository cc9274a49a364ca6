"""Test the quotas of Elastic IPs and VPCs: EC2 refuses more in these words, and Service Quotas reports them."""

import pytest
from botocore.exceptions import ClientError

from cli.preflight.quotas import service_quotas
from local.control_plane.limits.limit_files import ELASTIC_IPS, QUOTAS, VPCS
from tests.local.control_plane.harness import AccountLimits, Aws, Stacks
from tests.local.control_plane.templates import cluster


def test_addresses_beyond_the_quota_are_refused(aws: Aws, limits: AccountLimits) -> None:
    ec2 = aws.client("ec2")
    limits.set_quotas(elastic_ips=1)
    first = ec2.allocate_address(Domain="vpc")["AllocationId"]
    refusal = r"\(AddressLimitExceeded\).*: The maximum number of addresses has been reached\.$"
    with pytest.raises(ClientError, match=refusal):
        ec2.allocate_address(Domain="vpc")
    ec2.release_address(AllocationId=first)
    ec2.release_address(AllocationId=ec2.allocate_address(Domain="vpc")["AllocationId"])


def test_stack_without_room_for_its_vpc_is_rolled_back(aws: Aws, stacks: Stacks, limits: AccountLimits) -> None:
    used = len(aws.client("ec2").describe_vpcs()["Vpcs"])
    limits.set_quotas(vpcs=used)
    stacks.create(cluster())
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert any("The maximum number of VPCs has been reached." in reason for _, reason in stacks.events("Vpc"))
    limits.set_quotas(vpcs=used + 1)
    stacks.create(cluster(), "fits")
    assert stacks.status("fits") == "CREATE_COMPLETE"


@pytest.mark.parametrize(("name", "quota"), [(ELASTIC_IPS, service_quotas.ELASTIC_IPS), (VPCS, service_quotas.VPCS)])
def test_quota_is_answered_to_the_call_of_preflight(
    aws: Aws, limits: AccountLimits, name: str, quota: service_quotas.Quota
) -> None:
    limits.set_quotas(**{name: 3})
    answer = aws.client("service-quotas").get_service_quota(ServiceCode=quota.service, QuotaCode=quota.code)
    assert (answer["Quota"]["Value"], QUOTAS[name].title) == (3, quota.name)


def test_quota_that_is_not_set_leaves_room_for_anything(aws: Aws) -> None:
    quota = service_quotas.ELASTIC_IPS
    client = aws.client("service-quotas")
    answer = client.get_aws_default_service_quota(ServiceCode=quota.service, QuotaCode=quota.code)["Quota"]
    assert (answer["QuotaName"], answer["Value"]) == (quota.name, 100_000)
