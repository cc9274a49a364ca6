"""Check that the account may start the required number of instances of the type."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bootstrap.contract import CLUSTER_TAG
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.quotas import service_quotas
from cli.preflight.target import PreflightTarget
from stacks.catalog import instance_types
from stacks.settings.purchase import SPOT

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


def check_vcpu_quota(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the cluster's vCPUs with the quota's remainder beside running instances; spot has its own quota."""
    props = target.props
    if props.purchase == SPOT:
        yield from _check_vcpus(target, {props.master_type: 1}, is_spot=False)
        yield from _check_vcpus(target, {props.instance_type: props.worker_count}, is_spot=True)
    elif props.uses_capacity_block:
        # Instances in a Capacity Block do not count against the quota of On-Demand Instances.
        others = {name: count for name, count in props.node_counts.items() if name != props.instance_type}
        yield from _check_vcpus(target, others, is_spot=False)
    else:
        yield from _check_vcpus(target, props.node_counts, is_spot=False)


def _check_vcpus(target: PreflightTarget, counts: Mapping[str, int], *, is_spot: bool) -> Iterator[Finding]:
    by_quota: dict[service_quotas.Quota, dict[str, int]] = {}
    for name, count in counts.items():
        quota = service_quotas.vcpu_quota(name, is_spot=is_spot)
        if quota is None:
            yield warning("vCPU quota", f"could not check: no quota is known for {name}")
        else:
            by_quota.setdefault(quota, {})[name] = count
    for quota, counted in by_quota.items():
        yield from _vcpus_in(target, quota, counted, is_spot=is_spot)


def _vcpus_in(
    target: PreflightTarget, quota: service_quotas.Quota, counts: Mapping[str, int], *, is_spot: bool
) -> Iterator[Finding]:
    needed = sum(count * _vcpus_of_type(target, name) for name, count in counts.items())
    allowed = service_quotas.quota_floor(target, quota)
    used = _running_vcpus(target, quota, is_spot=is_spot)
    nodes = " and ".join(f"{count} x {name}" for name, count in counts.items())
    sentence = f"{nodes} are {needed} vCPUs; {quota.name}: {allowed}, {used} in use"
    if used + needed > allowed:
        yield problem(
            "vCPU quota", sentence, service_quotas.increase_advice(quota, wanted=used + needed, region=target.region)
        )
    else:
        yield ok("vCPU quota", sentence)


def _vcpus_of_type(target: PreflightTarget, name: str) -> int:
    if (known := instance_types.find(name)) is not None:
        return known.vcpus
    # With the user's own ami, any type is accepted, and EC2's list of type names is newer than the client's types.
    pages = target.clients.ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": [name]}]
    )
    vcpu_counts = [info["VCpuInfo"]["DefaultVCpus"] for page in pages for info in page["InstanceTypes"]]
    return vcpu_counts[0] if vcpu_counts else 0


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
