"""Check that the account's quotas leave room for the network: Elastic IPs and a VPC."""

from collections.abc import Iterator
from typing import Final

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.quotas import service_quotas
from cli.preflight.target import PreflightTarget, is_deployed, vpc_exists

ELASTIC_IPS: Final = 2
"""One for the NAT gateway and one for the master, unless it is private; in an existing VPC, only the master's."""
VPCS: Final = 1


def check_elastic_ip_quota(target: PreflightTarget) -> Iterator[Finding]:
    """Check the quota of Elastic IPs; AWS's default is 5 per region."""
    needed = ELASTIC_IPS if target.props.vpc_id is None else 1
    if target.props.private:
        needed -= 1
    if not needed:
        yield ok("Elastic IP", "a private cluster in an existing VPC needs none")
        return
    used = len(target.clients.ec2.describe_addresses()["Addresses"])
    yield from _room(target, "Elastic IP", service_quotas.ELASTIC_IPS, needed=needed, used=used)


def check_vpc_quota(target: PreflightTarget) -> Iterator[Finding]:
    """Check the quota of VPCs, unless the cluster uses an existing one."""
    if target.props.vpc_id is not None:
        yield _existing_vpc(target, target.props.vpc_id)
        return
    pages = target.clients.ec2.get_paginator("describe_vpcs").paginate()
    used = sum(len(page["Vpcs"]) for page in pages)
    yield from _room(target, "VPC", service_quotas.VPCS, needed=VPCS, used=used)


def _existing_vpc(target: PreflightTarget, vpc_id: str) -> Finding:
    if vpc_exists(target, vpc_id):
        return ok("VPC", f"the cluster goes into {vpc_id}")
    sentence = f"{vpc_id} does not exist in {target.region} (or this account cannot see it)"
    return problem("VPC", sentence, f"list yours with: aws ec2 describe-vpcs --region {target.region}")


def _room(
    target: PreflightTarget, subject: str, quota: service_quotas.Quota, *, needed: int, used: int
) -> Iterator[Finding]:
    if is_deployed(target):
        yield ok(subject, f"the cluster has its {subject} already")
        return
    allowed = service_quotas.quota_floor(target, quota)
    sentence = f"the cluster needs {needed}; {quota.name}: {allowed}, {used} in use"
    if used + needed > allowed:
        yield problem(
            subject, sentence, service_quotas.increase_advice(quota, wanted=used + needed, region=target.region)
        )
    else:
        yield ok(subject, sentence)
