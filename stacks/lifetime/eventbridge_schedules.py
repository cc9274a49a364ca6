"""Define schedules of EventBridge Scheduler that call AWS directly, each with its own role.

expiry.py and capacity_block.py say what they call and when.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from bootstrap.aws.group_sizes import PAUSED, ClusterSizes
from bootstrap.contract import NODE_TYPES, group_name
from stacks.cluster_role import ClusterRole, RoleRules
from stacks.lifetime.size_permissions import allow_declared_sizes, allow_zero_sizes
from stacks.settings.parsing import format_utc

PAUSE_RATE: Final = "rate(5 minutes)"
RETRIES: Final = 3
RETRY_FOR_S: Final = 240
"""Seconds after which a repeated call is abandoned, because the next one is due."""
START_RETRIES: Final = 60
START_RETRY_FOR_S: Final = 3600
"""Seconds after which a call that starts the nodes is abandoned."""
START_OFFSETS_MIN: Final = (0, 5, 15)
"""Minutes after the block's start at which the nodes are started; AWS may not retry a call that another service has
refused."""
UPDATE_GROUP: Final = "autoscaling:updateAutoScalingGroup"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiCall:
    """A call of AWS's API, and the role that makes it."""

    action: str
    request: str
    """Parameters, as JSON."""
    role: iam.IRole
    retries: int = RETRIES
    retry_for_s: int = RETRY_FOR_S


def pause_from(scope: Construct, start: datetime, *, rules: RoleRules, name: str, role_id: str = "Role") -> None:
    """Repeatedly set both groups to zero from a given time, with a role of this name."""
    role, cluster_name = create_scheduler_role(scope, role_id, name=name, rules=rules), rules.cluster_name
    allow_zero_sizes(role, cluster_name)
    for node_type in NODE_TYPES:
        request = json.dumps(PAUSED.request(group_name(cluster_name, node_type)))
        repeat_from(scope, node_type.capitalize(), start, ApiCall(action=UPDATE_GROUP, request=request, role=role))


def start_at(scope: Construct, start: datetime, *, before: datetime, rules: RoleRules, sizes: ClusterSizes) -> None:
    """Give both groups these sizes at a given time and twice soon after; never from ``before`` on, nor in the past."""
    role, cluster_name = create_scheduler_role(scope, "StartRole", name="start", rules=rules), rules.cluster_name
    allow_declared_sizes(role, cluster_name, sizes)
    for node_type in NODE_TYPES:
        request = json.dumps(sizes[node_type].request(group_name(cluster_name, node_type)))
        call = ApiCall(
            action=UPDATE_GROUP, request=request, role=role, retries=START_RETRIES, retry_for_s=START_RETRY_FOR_S
        )
        for minutes in START_OFFSETS_MIN:
            time = start + timedelta(minutes=minutes)
            if time >= before:
                continue
            # Use cron without a year, so that a deploy during the block is accepted: AWS rejects past StartDates, and
            # does not document past times in at() or in a cron expression with a year. EndDate stops the yearly
            # repeat, because a block ends less than a year from now.
            expression = f"cron({time.minute} {time.hour} {time.day} {time.month} ? *)"
            name = f"Start{node_type.capitalize()}{time:%Y%m%dT%H%M%S}"
            _create_schedule(scope, name, expression, call, end_date=format_utc(before))


def repeat_from(scope: Construct, name: str, start: datetime, call: ApiCall) -> None:
    """Make a call at PAUSE_RATE from a given time."""
    # The time is part of the ID, so that a new time creates a new schedule: EventBridge refuses a start that has
    # passed, which an update that is rolled back would have to set.
    _create_schedule(scope, f"{name}{start:%Y%m%dT%H%M%S}", PAUSE_RATE, call, start_date=format_utc(start))


def _create_schedule(
    scope: Construct,
    construct_id: str,
    expression: str,
    call: ApiCall,
    *,
    start_date: str | None = None,
    end_date: str | None = None,
) -> None:
    scheduler.CfnSchedule(
        scope,
        construct_id,
        schedule_expression=expression,
        start_date=start_date,
        end_date=end_date,
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        target=scheduler.CfnSchedule.TargetProperty(
            arn=f"arn:{cdk.Aws.PARTITION}:scheduler:::aws-sdk:{call.action}",
            role_arn=call.role.role_arn,
            input=call.request,
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_retry_attempts=call.retries, maximum_event_age_in_seconds=call.retry_for_s
            ),
        ),
    )


def create_scheduler_role(scope: Construct, construct_id: str, *, name: str, rules: RoleRules) -> ClusterRole:
    """Return a role that only the schedules of this account may assume."""
    group_of_schedules = cdk.Stack.of(scope).format_arn(
        service="scheduler", resource="schedule-group", resource_name="default"
    )
    conditions = {
        "StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID},
        "ArnEquals": {"aws:SourceArn": group_of_schedules},
    }
    principal = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions)
    return ClusterRole(scope, construct_id, principal=principal, name=name, rules=rules)
