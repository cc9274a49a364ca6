"""Check that the account's quota leaves room for the nodes' disks."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bootstrap.contract import CLUSTER_TAG
from cli.preflight.finding import Finding, ok, problem
from cli.preflight.quotas import service_quotas
from cli.preflight.target import PreflightTarget

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import VolumeTypeDef

_GIB_A_TIB: Final = 1024


def check_volume_quota(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the nodes' root volumes with the quota's remainder beside volumes in use."""
    needed, used = target.node_count * target.props.root_volume_gib, _used_gib(target)
    allowed = service_quotas.quota_value(target, service_quotas.GP3_TIB) * _GIB_A_TIB
    sentence = (
        f"{target.node_count} x {target.props.root_volume_gib} GiB are {needed} GiB; "
        f"{service_quotas.GP3_TIB.name}: {allowed / _GIB_A_TIB:g}, {used} GiB in use"
    )
    if used + needed > allowed:
        wanted = math.ceil((used + needed) / _GIB_A_TIB)
        fix = service_quotas.increase_advice(service_quotas.GP3_TIB, wanted=wanted, region=target.region)
        yield problem("EBS quota", sentence, f"set a smaller root_volume_gib, or {fix}")
    else:
        yield ok("EBS quota", sentence)


def _used_gib(target: PreflightTarget) -> int:
    """Return the size of the region's gp3 volumes without the cluster's own, which count as needed."""
    cluster_instances = own_instances(target)
    pages = target.clients.ec2.get_paginator("describe_volumes").paginate(
        Filters=[{"Name": "volume-type", "Values": ["gp3"]}]
    )
    return sum(
        volume["Size"] for page in pages for volume in page["Volumes"] if not _holders(volume) & cluster_instances
    )


def _holders(volume: "VolumeTypeDef") -> set[str]:
    return {attachment["InstanceId"] for attachment in volume.get("Attachments", []) if "InstanceId" in attachment}


def own_instances(target: PreflightTarget) -> set[str]:
    """Return the IDs of the cluster's instances."""
    pages = target.clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [target.props.cluster_name]}]
    )
    return {
        instance["InstanceId"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }
