"""Check that Auto Scaling has the role with which it starts instances; an account that never used it has none.

"Service-linked roles for Amazon EC2 Auto Scaling" (Amazon EC2 Auto Scaling User Guide): the creation of the first
group makes the role, if its caller, here CloudFormation, has iam:CreateServiceLinkedRole.
"""

from collections.abc import Iterator
from typing import Final

from cli.preflight.account.permissions import denied_to, execution_role
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget

ROLE: Final = "AWSServiceRoleForAutoScaling"
SERVICE: Final = "autoscaling.amazonaws.com"
ACTION: Final = "iam:CreateServiceLinkedRole"


def auto_scaling(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the role exists, or else that the deploy may create it."""
    iam, fix = target.clients.iam, f"aws iam create-service-linked-role --aws-service-name {SERVICE}"
    try:
        iam.get_role(RoleName=ROLE)
    except iam.exceptions.NoSuchEntityException:
        # IAM takes some seconds to know a new role everywhere; Auto Scaling tries again a minute later.
        sentence = f"there is no {ROLE}: the deploy creates it, and the first launches may fail once"
        yield warning("service role", sentence, f"create it first: {fix}")
    else:
        yield ok("service role", f"{ROLE} is there")
        return
    executor = execution_role(target)
    arn = f"arn:{target.partition}:iam::{target.account}:role/aws-service-role/{SERVICE}/{ROLE}"
    if denied_to(target, executor, [ACTION], arn):
        yield problem("service role", f"CloudFormation, as {executor}, may not create {ROLE} ({ACTION})", fix)
