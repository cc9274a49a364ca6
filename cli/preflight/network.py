"""Room for what the network needs: an address for the NAT gateway, and a VPC."""

from collections.abc import Iterator

from cli.preflight import quotas
from cli.preflight.finding import Finding, ok, problem
from cli.preflight.site import Site, is_deployed


def elastic_ip(site: Site) -> Iterator[Finding]:
    """One address more must be allowed."""
    used = len(site.clients.ec2.describe_addresses()["Addresses"])
    yield from _room(site, "Elastic IP", quotas.ELASTIC_IPS, used=used)


def vpc(site: Site) -> Iterator[Finding]:
    """One VPC more must be allowed."""
    pages = site.clients.ec2.get_paginator("describe_vpcs").paginate()
    used = sum(len(page["Vpcs"]) for page in pages)
    yield from _room(site, "VPC", quotas.VPCS, used=used)


def _room(site: Site, subject: str, quota: quotas.Quota, *, used: int) -> Iterator[Finding]:
    if is_deployed(site):
        yield ok(subject, f"the cluster has its {subject} already")
        return
    allowed = quotas.value(site, quota)
    found = f"the cluster needs 1; {quota.name}: {allowed}, {used} in use"
    if used + 1 > allowed:
        yield problem(subject, found, quotas.request(quota, wanted=used + 1, region=site.region))
    else:
        yield ok(subject, found)
