"""Check that EC2 offers the type in the cluster's zone, and name the zones that offer it."""

from collections.abc import Iterator

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.target import PreflightTarget, is_deployed
from stacks.catalog import instance_types
from stacks.settings.network import first_zone, zones_context_key


def check_offering(target: PreflightTarget) -> Iterator[Finding]:
    """Check that EC2 offers the type in the cluster's zone; this does not prove that capacity is free."""
    if not target.props.has_zone:
        for name in target.props.node_counts:
            yield _offering_in_candidates(target, name)
        return
    zone = deploy_zone(target)
    if zone is None and target.props.subnet_id is not None:
        return  # there is no such subnet, as its own check reports
    for name in target.props.node_counts:
        yield from _check_offering(target, name, zone)


def _offering_in_candidates(target: PreflightTarget, name: str) -> Finding:
    """Return the candidates in which ``dlcluster up`` can search for capacity."""
    zones, offering = target.props.zones, zones_with(target, name)
    candidates = [zone for zone in zones if zone in offering]
    if candidates:
        return ok(
            "instance type", f"{name} is offered in {', '.join(candidates)} of the {len(zones)} zones to choose from"
        )
    fix = (
        f"name others in zones: {', '.join(offering)}"
        if offering
        else "choose another instance_type, or another region"
    )
    return problem("instance type", f"no zone in the setting zones offers {name}: {', '.join(zones)}", fix)


def _check_offering(target: PreflightTarget, name: str, zone: str | None) -> Iterator[Finding]:
    offering = zones_with(target, name)
    if zone in offering:
        others = ", ".join(other for other in offering if other != zone) or "no other zone"
        yield ok("instance type", f"{name} is offered in {zone}; also in {others}")
    elif not offering:
        near = instance_types.find(name)
        other = near.successor if near and near.successor else "another instance_type"
        yield problem(
            "instance type", f"{name} is not offered in {target.region}", f"choose {other}, or another region"
        )
    elif is_deployed(target):
        sentence = f"{name} is not offered in {zone}, which the running cluster keeps"
        yield problem("instance type", sentence, "choose another instance_type, or run cdk destroy first")
    else:
        fix = " or ".join(f"-c availability_zone={other}" for other in offering)
        if target.props.subnet_id is not None:
            fix = f"choose a subnet_id in {' or '.join(offering)}"
        yield problem("instance type", f"{name} is not offered in {zone}", fix)


def deploy_zone(target: PreflightTarget) -> str | None:
    """Return the deploy's zone: the one in the settings, or the first of those that a synth looks up."""
    if target.props.subnet_id is not None:
        subnets = target.clients.ec2.describe_subnets(
            Filters=[{"Name": "subnet-id", "Values": [target.props.subnet_id]}]
        )["Subnets"]
        return subnets[0]["AvailabilityZone"] if subnets else None
    if (chosen := target.props.availability_zone or next(iter(target.props.zones), None)) is not None:
        return chosen
    return first_zone(
        target.cdk_context.get(zones_context_key(target.account, target.region)) or _all_zones(target), target.region
    )


def _all_zones(target: PreflightTarget) -> list[str]:
    response = target.clients.ec2.describe_availability_zones(Filters=[{"Name": "state", "Values": ["available"]}])
    return [zone["ZoneName"] for zone in response["AvailabilityZones"]]


def zones_with(target: PreflightTarget, instance_type: str) -> list[str]:
    """Return the region's own zones, then Local Zones, not all of which have a NAT gateway for the workers."""
    pages = target.clients.ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [instance_type]}]
    )
    zones = [offered["Location"] for page in pages for offered in page["InstanceTypeOfferings"]]
    return sorted(zones, key=lambda zone: (first_zone([zone], target.region) is None, zone))
