"""Define a cluster's lifetime in a Capacity Block: its nodes start with the block, and end before it does."""

from datetime import datetime, timezone
from typing import Any, Final

import aws_cdk as cdk
from constructs import Construct

from stacks.cluster_role import RoleRules
from stacks.lifetime.eventbridge_schedules import pause_from, start_at
from stacks.network.zone import cluster_zone
from stacks.settings.base import SettingsError
from stacks.settings.parsing import format_utc
from stacks.settings.props import ClusterProps
from stacks.settings.purchase import CAPACITY_BLOCK, CapacityBlock, parse_capacity_block, require_fit

_PROPERTIES: Final = (
    "AvailabilityZone", "EndDate", "InstanceType", "ReservationType", "StartDate", "TotalInstanceCount",
)  # fmt: skip


class BlockSchedules(Construct):
    """Schedules that set both groups to their sizes at the block's start, and to zero before its end.

    For each schedule, a role may set these sizes of these groups and do nothing else.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: ClusterProps, block: CapacityBlock) -> None:
        super().__init__(scope, construct_id)
        rules = RoleRules.of(props)
        start_at(self, block.starts_at, before=block.pauses_at, rules=rules, sizes=props.fleet_sizes)
        pause_from(self, block.pauses_at, rules=rules, name="pause", role_id="PauseRole")
        now = datetime.now(timezone.utc)
        if block.starts_at <= now < block.pauses_at:
            cdk.Annotations.of(self).add_info(
                f"Capacity Block {block.block_id} has already started: if no node is running, "
                "run dlcluster resume after the deploy"
            )
        if block.pauses_at <= now:
            # An annotation stops a deploy but, unlike an exception, not a destroy.
            cdk.Annotations.of(self).add_error(
                f"Capacity Block {block.block_id} is over, its nodes were terminated at {format_utc(block.pauses_at)}: "
                "set capacity_reservation to the next one in cdk.json"
            )


def look_up_capacity_block(scope: Construct, props: ClusterProps) -> CapacityBlock | None:
    """Return the block of the settings, or None without one. Raises SettingsError if the cluster does not fit.

    The lookup happens once. Its answer stays in cdk.context.json, so that each synth makes the same schedules.
    """
    block_id, stack = props.capacity_reservation, cdk.Stack.of(scope)
    if not props.uses_capacity_block or block_id is None:
        return None
    if cdk.Token.is_unresolved(stack.account) or cdk.Token.is_unresolved(stack.region):
        raise SettingsError(f"capacity_reservation {block_id} needs credentials, as the block's dates are looked up")
    zone = cluster_zone(scope, props)
    answer = cdk.ContextProvider.get_value(
        scope,
        # CC_API_PROVIDER of the cloud assembly schema: jsii's enumerations hide their values.
        provider="cc-api-provider",
        props={
            "typeName": "AWS::EC2::CapacityReservation",
            "exactIdentifier": block_id,
            "propertiesToReturn": [*_PROPERTIES],
        },
        # The CDK discards the first pass, which runs before the lookup.
        dummy_value=[_placeholder(props, zone)],
    )
    block = parse_capacity_block(block_id, answer.value[0])
    require_fit(block, props, zone=zone)
    return block


def _placeholder(props: ClusterProps, zone: str | None) -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "EndDate": "2999-01-02T11:30:00Z",
        "InstanceType": props.instance_type,
        "ReservationType": CAPACITY_BLOCK,
        "StartDate": "2999-01-01T11:30:00Z",
        "TotalInstanceCount": props.node_counts.get(props.instance_type, 0),
    }
