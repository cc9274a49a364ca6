"""Whether the account may start that many instances of the type."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bootstrap.contract import CLUSTER_TAG
from cli.preflight import quotas
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import Site
from stacks.settings import instance_types

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


def vcpus(site: Site) -> Iterator[Finding]:
    """Compare the vCPUs that the cluster needs with the quota, less what runs."""
    quota = quotas.vcpu_quota(site.props.instance_type)
    if quota is None:
        yield warning("vCPU quota", f"could not check: no quota is known for {site.props.instance_type}")
        return
    needed = site.nodes * _vcpus_of_type(site)
    allowed = quotas.value(site, quota)
    used = _running_vcpus(site, quota)
    found = f"{site.nodes} x {site.props.instance_type} are {needed} vCPUs; {quota.name}: {allowed}, {used} in use"
    if used + needed > allowed:
        yield problem("vCPU quota", found, quotas.request(quota, wanted=used + needed, region=site.region))
    else:
        yield ok("vCPU quota", found)


def _vcpus_of_type(site: Site) -> int:
    if site.props.instance is not None:
        return site.props.instance.vcpus
    # Any type is taken together with an ami of the user's.
    name = site.props.instance_type
    # EC2's list of type names is newer than what the client's types know.
    pages = site.clients.ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": [name]}]
    )
    found = [kind["VCpuInfo"]["DefaultVCpus"] for page in pages for kind in page["InstanceTypes"]]
    return found[0] if found else 0


def _running_vcpus(site: Site, quota: quotas.Quota) -> int:
    """The vCPUs of other on-demand instances that the quota counts; the cluster's own are in what it needs."""
    pages = site.clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )
    reservations = (reservation for page in pages for reservation in page["Reservations"])
    return sum(
        _vcpus(instance)
        for reservation in reservations
        for instance in reservation["Instances"]
        if quotas.vcpu_quota(instance["InstanceType"]) == quota
        and "InstanceLifecycle" not in instance  # Spot, scheduled and capacity blocks have other quotas.
        and not _is_own(instance, site.props.cluster_name)
    )


def _is_own(instance: "InstanceTypeDef", cluster_name: str) -> bool:
    return {"Key": CLUSTER_TAG, "Value": cluster_name} in instance.get("Tags", [])


def _vcpus(instance: "InstanceTypeDef") -> int:
    options = instance.get("CpuOptions", {})
    if "CoreCount" in options:
        return options["CoreCount"] * options.get("ThreadsPerCore", 1)
    known = instance_types.find(instance["InstanceType"])
    return known.vcpus if known else 0
