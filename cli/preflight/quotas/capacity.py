"""Check that the account may start that many instances of the type."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bootstrap.contract import CLUSTER_TAG
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.quotas import service_quotas
from cli.preflight.target import PreflightTarget
from stacks.catalogue import instance_types
from stacks.settings.purchase import SPOT

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


def vcpus(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the cluster's vCPUs with what the quota leaves beside running instances; spot has one of its own."""
    if target.props.purchase == SPOT:
        yield from _vcpus_of(target, 1, is_spot=False)
        yield from _vcpus_of(target, target.props.worker_count, is_spot=True)
    else:
        yield from _vcpus_of(target, target.nodes, is_spot=False)


def _vcpus_of(target: PreflightTarget, nodes: int, *, is_spot: bool) -> Iterator[Finding]:
    quota = service_quotas.vcpu_quota(target.props.instance_type, is_spot=is_spot)
    if quota is None:
        yield warning("vCPU quota", f"could not check: no quota is known for {target.props.instance_type}")
        return
    needed = nodes * _vcpus_of_type(target)
    allowed = service_quotas.quota_floor(target, quota)
    used = _running_vcpus(target, quota, is_spot=is_spot)
    found = f"{nodes} x {target.props.instance_type} are {needed} vCPUs; {quota.name}: {allowed}, {used} in use"
    if used + needed > allowed:
        yield problem(
            "vCPU quota", found, service_quotas.increase_advice(quota, wanted=used + needed, region=target.region)
        )
    else:
        yield ok("vCPU quota", found)


def _vcpus_of_type(target: PreflightTarget) -> int:
    if target.props.instance is not None:
        return target.props.instance.vcpus
    # Any type is taken together with an ami of the user's.
    name = target.props.instance_type
    # EC2's list of type names is newer than what the client's types know.
    pages = target.clients.ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": [name]}]
    )
    found = [info["VCpuInfo"]["DefaultVCpus"] for page in pages for info in page["InstanceTypes"]]
    return found[0] if found else 0


def _running_vcpus(target: PreflightTarget, quota: service_quotas.Quota, *, is_spot: bool) -> int:
    """Return the vCPUs of other instances that the quota counts; the cluster's own count as needed."""
    pages = target.clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )
    reservations = (reservation for page in pages for reservation in page["Reservations"])
    return sum(
        _vcpus(instance)
        for reservation in reservations
        for instance in reservation["Instances"]
        if service_quotas.vcpu_quota(instance["InstanceType"], is_spot=is_spot) == quota
        # Scheduled instances and capacity blocks have other quotas.
        and instance.get("InstanceLifecycle") == ("spot" if is_spot else None)
        and not _is_own(instance, target.props.cluster_name)
    )


def _is_own(instance: "InstanceTypeDef", cluster_name: str) -> bool:
    return {"Key": CLUSTER_TAG, "Value": cluster_name} in instance.get("Tags", [])


def _vcpus(instance: "InstanceTypeDef") -> int:
    options = instance.get("CpuOptions", {})
    if "CoreCount" in options:
        return options["CoreCount"] * options.get("ThreadsPerCore", 1)
    known = instance_types.find(instance["InstanceType"])
    return known.vcpus if known else 0
