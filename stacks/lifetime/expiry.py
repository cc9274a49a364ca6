"""Define the end of a cluster: from a given time, EventBridge Scheduler repeatedly sets both groups to zero.

The call repeats, because a resume or a rollback could undo a single one. The schedules call AWS directly, so nothing
needs to run, neither on the user's computer nor on the cluster. If the stack should end too, another schedule deletes
it later.
eventbridge_schedules.py creates the schedules; lifetime_schedules.py calls this file if ``expires`` is set.
"""

from datetime import datetime, timezone
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.cluster_role import RoleRules
from stacks.lifetime.eventbridge_schedules import ApiCall, create_scheduler_role, pause_from, repeat_from
from stacks.settings.lifetime import DELETE_AFTER
from stacks.settings.parsing import format_utc

DELETE_STACK: Final = "cloudformation:deleteStack"


class Expiry(Construct):
    """One schedule per group, with a role that may set a size to zero and do nothing else.

    With ``deletes``, there is one more for the stack, with a role that may delete this stack, passing CloudFormation
    the CDK's execution role.
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
        pause_from(self, expires, rules=role_rules, name="expiry")
        if deletes:
            self._delete_stack(expires + DELETE_AFTER)
        if expires <= datetime.now(timezone.utc):
            # An annotation stops a deploy but, unlike an exception, not a destroy.
            cdk.Annotations.of(self).add_error(
                f"expires has passed, {format_utc(expires)}: "
                "dlcluster extend 8h, or set a later one or none in cdk.json"
            )

    def _delete_stack(self, start: datetime) -> None:
        stack, executor = cdk.Stack.of(self), _execution_role(self)
        if executor is None or stack.termination_protection:
            cdk.Annotations.of(self).add_error(
                "expiry_action delete needs a stack of its own without termination protection, and a synthesizer with "
                "the execution role of cdk bootstrap, which deletes the stack's resources"
            )
            return
        role = create_scheduler_role(self, "DeletionRole", name="deletion", rules=self._role_rules)
        # Use the stack's ID instead of its name, because a later stack may have the same name.
        role.allow(
            "Deletion",
            iam.PolicyStatement(actions=["cloudformation:DeleteStack"], resources=[stack.stack_id]),
            # CloudFormation deletes with the role that deployed the stack. AWS's pages disagree on whether the caller
            # must be allowed to pass it.
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[executor],
                conditions={"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}},
            ),
        )
        request = stack.to_json_string({"StackName": stack.stack_id})
        repeat_from(self, "Stack", start, ApiCall(action=DELETE_STACK, request=request, role=role))


def _execution_role(scope: Construct) -> str | None:
    """Return the ARN of the role with which the CDK deploys the stack; None for a nested stack or without a role."""
    stack = cdk.Stack.of(scope)
    synthesizer = stack.synthesizer
    if not isinstance(synthesizer, cdk.DefaultStackSynthesizer):
        return None
    if stack.nested or isinstance(synthesizer, cdk.BootstraplessSynthesizer):
        return None
    # In a stack for any environment, account and region are placeholders of Fn::Sub.
    return cdk.Fn.sub(synthesizer.cloud_formation_execution_role_arn)
