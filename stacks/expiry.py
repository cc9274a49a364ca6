"""Define the end of a cluster: from its time on, EventBridge Scheduler sets both groups to zero, again and again.

A single call could be undone by a resume, or by an update that rolls back. The schedules call AWS themselves,
so nothing has to run, neither here nor on the cluster. If the stack is to go too, another schedule deletes it later.
"""

from datetime import datetime, timezone
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.cluster_role import RoleRules
from stacks.schedules import Call, pause_from, repeat_from, scheduler_role
from stacks.settings.lifetime import DELETE_AFTER, iso

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
        pause_from(self, expires, rules=role_rules, name="expiry")
        if deletes:
            self._delete_stack(expires + DELETE_AFTER)
        if expires <= datetime.now(timezone.utc):
            # An annotation stops a deploy but, unlike an exception, not a destroy.
            cdk.Annotations.of(self).add_error(
                f"expires has passed, {iso(expires)}: dlcluster extend 8h, or set a later one or none in cdk.json"
            )

    def _delete_stack(self, start: datetime) -> None:
        stack, executor = cdk.Stack.of(self), _execution_role(self)
        if executor is None or stack.termination_protection:
            cdk.Annotations.of(self).add_error(
                "expiry_action delete needs a stack of its own without termination protection, and a synthesizer with "
                "the execution role of cdk bootstrap, which deletes the stack's parts"
            )
            return
        role = scheduler_role(self, "DeletionRole", name="deletion", rules=self._role_rules)
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
        repeat_from(self, "Stack", start, Call(action=DELETE_STACK, request=request, role=role))


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
