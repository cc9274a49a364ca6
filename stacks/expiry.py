"""Define the end of a cluster: from its time on, EventBridge Scheduler sets both groups to zero, again and again.

A single call could be undone by a resume, or by an update that rolls back. The schedules call AWS themselves,
so nothing has to run, neither here nor on the cluster. If the stack is to go too, another schedule deletes it later.
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
from stacks.cluster_role import ClusterRole, RoleRules
from stacks.pause_permission import allow_pause
from stacks.settings.lifetime import DELETE_AFTER, iso

EVERY: Final = "rate(5 minutes)"
RETRIES: Final = 3
RETRY_FOR_S: Final = 240
"""Seconds after which a call is given up: the next is due."""
UPDATE_GROUP: Final = "autoscaling:updateAutoScalingGroup"
DELETE_STACK: Final = "cloudformation:deleteStack"


class Expiry(Construct):
    """A schedule for each group, with a role that may set a size to zero and do nothing else.

    With ``deletes``, one more for the stack, with a role that may delete this stack as CloudFormation's own role.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        expires: datetime,
        role_rules: RoleRules,
        deletes: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self._role_rules = role_rules
        role = self._role("Role", "expiry")
        allow_pause(role, role_rules.cluster_name)
        for node_type in NODE_TYPES:
            request = json.dumps(PAUSED.request(group_name(role_rules.cluster_name, node_type)))
            self._schedule(node_type.capitalize(), expires, call=UPDATE_GROUP, request=request, role=role)
        if deletes:
            self._delete_stack(expires + DELETE_AFTER)
        if expires <= datetime.now(timezone.utc):
            # An annotation stops a deploy but, unlike an exception, not a destroy.
            cdk.Annotations.of(self).add_error(
                f"expires has passed, {iso(expires)}: dlcluster extend 8h, or set a later one or none in cdk.json"
            )

    def _schedule(self, name: str, start: datetime, *, call: str, request: str, role: iam.IRole) -> None:
        # The time is part of the ID, so that a new time makes a new schedule: EventBridge refuses a start that has
        # passed, and an update that is rolled back would have to set one.
        scheduler.CfnSchedule(
            self,
            f"{name}{start:%Y%m%dT%H%M%S}",
            schedule_expression=EVERY,
            start_date=iso(start),
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=f"arn:{cdk.Aws.PARTITION}:scheduler:::aws-sdk:{call}",
                role_arn=role.role_arn,
                input=request,
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=RETRIES, maximum_event_age_in_seconds=RETRY_FOR_S
                ),
            ),
        )

    def _delete_stack(self, start: datetime) -> None:
        stack, executor = cdk.Stack.of(self), _execution_role(self)
        if executor is None or stack.termination_protection:
            cdk.Annotations.of(self).add_error(
                "expiry_action delete needs a stack of its own without termination protection, and a synthesizer with "
                "the execution role of cdk bootstrap, which deletes the stack's parts"
            )
            return
        role = self._role("DeletionRole", "deletion")
        # The stack's ID, not its name: a later stack of the name is another.
        role.allow(
            "Deletion",
            iam.PolicyStatement(actions=["cloudformation:DeleteStack"], resources=[stack.stack_id]),
            # CloudFormation deletes as the role with which the stack was deployed. AWS's pages disagree whether the
            # caller must be allowed to pass it.
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[executor],
                conditions={"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}},
            ),
        )
        request = stack.to_json_string({"StackName": stack.stack_id})
        self._schedule("Stack", start, call=DELETE_STACK, request=request, role=role)

    def _role(self, construct_id: str, name: str) -> ClusterRole:
        """Return a role that only the schedules of this account may take."""
        group_of_schedules = cdk.Stack.of(self).format_arn(
            service="scheduler", resource="schedule-group", resource_name="default"
        )
        conditions = {
            "StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID},
            "ArnEquals": {"aws:SourceArn": group_of_schedules},
        }
        principal = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions)
        return ClusterRole(self, construct_id, principal=principal, name=name, rules=self._role_rules)


def _execution_role(scope: Construct) -> str | None:
    """Return the ARN of the role with which the CDK deploys the stack; None for a nested one, and without a role."""
    stack = cdk.Stack.of(scope)
    synthesizer = stack.synthesizer
    if not isinstance(synthesizer, cdk.DefaultStackSynthesizer):
        return None
    if stack.nested or isinstance(synthesizer, cdk.BootstraplessSynthesizer):
        return None
    # Account and region are placeholders of Fn::Sub in a stack that fits any.
    return cdk.Fn.sub(synthesizer.cloud_formation_execution_role_arn)
