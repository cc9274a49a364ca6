"""Define the end of a cluster: from its time on, EventBridge Scheduler sets both groups to zero, again and again.

A single call could be lost: to an update in progress that rolls back, to a resume. The schedule calls Auto Scaling
itself, so nothing has to run, neither here nor on the cluster.
"""

import json
from datetime import datetime, timezone
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import NODE_TYPES, group_name
from stacks.settings.lifetime import iso

EVERY: Final = "rate(5 minutes)"
RETRIES: Final = 3
RETRY_FOR_S: Final = 240
"""Seconds after which a call is given up: the next is due."""


class Expiry(Construct):
    """Two schedules, one for each group, and a role that may set a size to zero and do nothing else."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str, expires: datetime) -> None:
        super().__init__(scope, construct_id)
        self._cluster_name = cluster_name
        role = self._role()
        partition = cdk.Aws.PARTITION
        for node_type in NODE_TYPES:
            # The time is part of the ID, so that a new time makes a new schedule: EventBridge refuses a start that has
            # passed, and an update that is rolled back would have to set one.
            scheduler.CfnSchedule(
                self,
                f"{node_type.capitalize()}{expires:%Y%m%dT%H%M%S}",
                schedule_expression=EVERY,
                start_date=iso(expires),
                flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
                target=scheduler.CfnSchedule.TargetProperty(
                    arn=f"arn:{partition}:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup",
                    role_arn=role.role_arn,
                    input=json.dumps(PAUSED.request(group_name(cluster_name, node_type))),
                    retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                        maximum_retry_attempts=RETRIES, maximum_event_age_in_seconds=RETRY_FOR_S
                    ),
                ),
            )
        if expires <= datetime.now(timezone.utc):
            # An annotation stops a deploy and, unlike an exception, no destroy.
            cdk.Annotations.of(self).add_error(
                f"expires has passed, {iso(expires)}: dlcluster extend 8h, or set a later one or none in cdk.json"
            )

    def _role(self) -> iam.Role:
        stack = cdk.Stack.of(self)
        group_of_schedules = stack.format_arn(service="scheduler", resource="schedule-group", resource_name="default")
        conditions = {
            "StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID},
            "ArnEquals": {"aws:SourceArn": group_of_schedules},
        }
        principal = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions)
        role = iam.Role(self, "Role", assumed_by=principal)
        groups = [f"autoScalingGroup:*:autoScalingGroupName/{group_name(self._cluster_name, t)}" for t in NODE_TYPES]
        place = f"{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}"
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["autoscaling:UpdateAutoScalingGroup"],
                resources=[f"arn:{cdk.Aws.PARTITION}:autoscaling:{place}:{group}" for group in groups],
                conditions={"NumericEquals": {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}},
            )
        )
        for group in groups:
            arn = f"arn:<AWS::Partition>:autoscaling:<AWS::Region>:<AWS::AccountId>:{group}"
            cdk.Validations.of(role).acknowledge(
                cdk.Acknowledgment(
                    id=f"AwsSolutions::AwsSolutions-IAM5[Resource::{arn}]",
                    reason="the star is the ID that AWS gives the only group of this name",
                )
            )
        return role
