"""Make the calls of the product's schedules, as a synthesized template contains them."""

import functools
import json
from typing import Any, Final

import aws_cdk as cdk

from stacks.cluster_role import RoleRules
from stacks.lifetime.capacity_block import BlockSchedules
from stacks.lifetime.eventbridge_schedules import UPDATE_GROUP
from stacks.lifetime.expiry import Expiry
from stacks.settings.props import ClusterProps
from stacks.settings.purchase import parse_capacity_block
from tests.cli.node_groups.nodeless_cluster import NAME, NodelessCluster
from tests.stacks.pinned_block import BLOCK, FACTS, SETTINGS

_EXPIRY: Final = "Expiry"
_BLOCK: Final = "Block"


def expire(deployed: NodelessCluster) -> None:
    """Make the calls of ``expires``."""
    _call(deployed, _EXPIRY, "rate")


def start_block(deployed: NodelessCluster) -> None:
    """Make the calls at the start of a Capacity Block."""
    _call(deployed, _BLOCK, "cron")


def end_block(deployed: NodelessCluster) -> None:
    """Make the calls before the end of a Capacity Block."""
    _call(deployed, _BLOCK, "rate")


def _call(deployed: NodelessCluster, construct_id: str, expression: str) -> None:
    """Make the calls of a construct's schedules whose expressions start like this."""
    found = [
        schedule
        for name, schedule in _schedules().items()
        if name.startswith(construct_id) and schedule["ScheduleExpression"].startswith(f"{expression}(")
    ]
    assert found
    for schedule in found:
        assert schedule["Target"]["Arn"]["Fn::Join"][1][-1].endswith(f":aws-sdk:{UPDATE_GROUP}")
        deployed.autoscaling.update_auto_scaling_group(**json.loads(schedule["Target"]["Input"]))


@functools.cache
def _schedules() -> dict[str, dict[str, Any]]:
    """Return the properties of all schedules by logical ID."""
    app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Schedules")
    props = ClusterProps(**SETTINGS, cluster_name=NAME)
    block = parse_capacity_block(BLOCK, FACTS)
    Expiry(stack, _EXPIRY, expires=block.starts_at, role_rules=RoleRules.of(props))
    BlockSchedules(stack, _BLOCK, props=props, block=block)
    resources: dict[str, Any] = app.synth().get_stack_by_name("Schedules").template["Resources"]
    found = {name: resource for name, resource in resources.items() if resource["Type"] == "AWS::Scheduler::Schedule"}
    return {name: resource["Properties"] for name, resource in found.items()}
