"""Check, before creating anything, that the zones offer the types and the quota allows the nodes.

For spot nodes, also read which zones most likely have capacity.
"""

import sys
from collections.abc import Mapping, Sequence

from cli.aws.clients import Clients, aws_errors
from cli.errors import ClusterError, UsageError
from cli.preflight.nodes.offering import zones_with
from cli.preflight.quotas.capacity import check_vcpu_quota
from cli.preflight.target import PreflightTarget
from cli.up.zone_deployer import ZONE
from stacks.prices.price_list import PriceList
from stacks.prices.rate import Rate, declared_parts, hourly_rate
from stacks.settings.props import ClusterProps
from stacks.settings.purchase import SPOT


def require_zones(props: ClusterProps, cdk_options: tuple[str, ...], *, cluster: str | None) -> None:
    """Raise UsageError for settings that leave no choice of zone."""
    if any(pair.partition("=")[0] == ZONE for pair in cdk_options):
        raise UsageError(f"-c {ZONE} cannot be combined with up, which chooses it")
    if not props.zones:
        raise UsageError(
            'cdk.json has no zones to choose from: add "zones": ["us-east-1a", "us-east-1b"], or cdk deploy in one zone'
        )
    if cluster not in (None, props.cluster_name):
        raise UsageError(f"cdk.json is for cluster {props.cluster_name}, not for --cluster {cluster}")


def require_spot(props: ClusterProps) -> None:
    """Refuse ``--by-spot-score`` without spot workers: EC2 scores only spot capacity. Raises UsageError."""
    if props.purchase != SPOT or not props.worker_count:
        got = f"purchase={props.purchase} and worker_count={props.worker_count}"
        raise UsageError(f"--by-spot-score needs purchase={SPOT} and a worker, got {got}: leave it out")


def zones_without_type(target: PreflightTarget, zones: Sequence[str]) -> dict[str, str]:
    """Return the reason for each zone in which EC2 does not offer a type.

    Raises ClusterError if that is all of them.
    """
    missing_types: dict[str, list[str]] = {}
    for name in target.props.node_counts:
        zones_with_type = zones_with(target, name)
        for zone in zones:
            if zone not in zones_with_type:
                missing_types.setdefault(zone, []).append(name)
    if missing_types.keys() >= {*zones}:
        types = " and ".join(target.props.node_counts)
        raise ClusterError(
            f"no zone in the setting zones offers {types}: {', '.join(zones)}; dlcluster preflight names others"
        )
    return {zone: f"EC2 offers no {' and '.join(names)} here" for zone, names in missing_types.items()}


def require_quota(target: PreflightTarget) -> None:
    """Raise ClusterError for more vCPUs than the account may start, if the caller may query the quota."""
    try:
        with aws_errors(target.clients.region):
            findings = [*check_vcpu_quota(target)]
    except ClusterError as error:
        print(f"dlcluster: could not check the vCPU quota: {error}", file=sys.stderr)
        return
    for finding in findings:
        if finding.level == "problem":
            raise ClusterError(f"{finding.sentence}: {finding.fix}")
        print(f"dlcluster: {finding.sentence}", file=sys.stderr)


def spot_scores(clients: Clients, props: ClusterProps) -> dict[str, int] | None:
    """Return EC2's scores of ``zones``; None if EC2 refuses, as it does after some new requests a day."""
    try:
        with aws_errors(clients.region):
            return _spot_scores(clients, props)
    except ClusterError as error:
        print(f"dlcluster: no spot placement scores, so zones keep their order: {error}", file=sys.stderr)
        return None


def _spot_scores(clients: Clients, props: ClusterProps) -> dict[str, int]:
    """Return EC2's spot placement score of each of ``zones``, from 1 to 10; a zone without one is not in it.

    EC2 names zones by IDs, which mean the same place in every account, unlike names.
    """
    described = clients.ec2.describe_availability_zones(ZoneNames=list(props.zones))["AvailabilityZones"]
    names = {zone["ZoneId"]: zone["ZoneName"] for zone in described}
    pages = clients.ec2.get_paginator("get_spot_placement_scores").paginate(
        InstanceTypes=[props.instance_type],
        TargetCapacity=props.worker_count,
        SingleAvailabilityZone=True,
        RegionNames=[clients.region],
    )
    scores = {score["AvailabilityZoneId"]: score["Score"] for page in pages for score in page["SpotPlacementScores"]}
    return {name: scores[zone_id] for zone_id, name in names.items() if zone_id in scores}


def sort_by_score(zones: Sequence[str], scores: Mapping[str, int]) -> list[str]:
    """Return the zones with the best score first; equal ones stay in the user's order."""
    return sorted(zones, key=lambda zone: -scores.get(zone, 0))


def fleet_rate(props: ClusterProps, prices: PriceList) -> Rate:
    """Return the cluster's cost per hour with every node."""
    return hourly_rate(declared_parts(props), prices)
