"""Choose the availability zone of all nodes."""

import aws_cdk as cdk
from constructs import Construct

from stacks.immutable_settings import UNPINNED_ZONE
from stacks.network.existing_network import existing_subnets
from stacks.settings.network import first_zone
from stacks.settings.props import ClusterProps


def cluster_zone(scope: Construct, props: ClusterProps) -> str | None:
    """Return the zone of all nodes; None if only CloudFormation can choose it."""
    if props.vpc_id is not None:
        return existing_subnets(scope, props).worker.zone
    if props.zones:
        # Only a deploy started by `dlcluster up` starts nodes in the first one; until then, the groups are empty.
        return props.availability_zone or props.zones[0]
    return props.availability_zone or _default_zone(scope)


def _default_zone(scope: Construct) -> str | None:
    """Return the region's first zone, looked up once and kept in cdk.context.json; None without an account.

    ``stack.availability_zones`` is unsuitable: ClusterStack overrides it, and it would accept any kind of zone.
    """
    stack = cdk.Stack.of(scope)
    region = stack.region
    if cdk.Token.is_unresolved(stack.account) or cdk.Token.is_unresolved(region):
        return None
    answer = cdk.ContextProvider.get_value(
        scope,
        # AVAILABILITY_ZONE_PROVIDER of the cloud assembly schema: jsii's enumerations hide their values.
        provider="availability-zones",
        # The CDK discards the first pass, which runs before the lookup.
        dummy_value=[f"{region}a"],
    )
    return first_zone(answer.value, region)


def network_zones(scope: Construct, props: ClusterProps) -> list[str]:
    """Return the zones in which the network has subnets: the candidates by name, or the single zone of all nodes."""
    return [*props.candidate_zones] or [zone_in_template(cluster_zone(scope, props))]


def zone_in_template(zone: str | None) -> str:
    """Return the zone's name, or, without one, the expression that lets CloudFormation choose at the deploy."""
    return zone or cdk.Fn.select(0, cdk.Fn.get_azs())


def zone_warning(zone: str | None) -> dict[str, str]:
    """Warn if CloudFormation chooses the zone, because nothing records its name."""
    if zone is not None:
        return {}
    sentence = (
        "availability_zone is not set and could not be looked up without credentials: CloudFormation chooses the "
        f"zone, and the stack records {UNPINNED_ZONE!r}"
    )
    return {"zone-not-pinned": sentence}
