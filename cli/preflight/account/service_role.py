"""Check the roles with which AWS's services act for the cluster; an account that never used a service lacks its role.

"Service-linked roles for Amazon EC2 Auto Scaling" (Amazon EC2 Auto Scaling User Guide), "Using service-linked roles for
Amazon EFS" (Amazon EFS User Guide): creating the first group or mount target creates the role, if the caller (here
CloudFormation) has iam:CreateServiceLinkedRole.
"""

from collections.abc import Iterator
from typing import Final

from cli.preflight.account.permissions import denied_to, execution_role
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget
from stacks.settings.purchase import SPOT

AUTO_SCALING: Final = ("AWSServiceRoleForAutoScaling", "autoscaling.amazonaws.com")
EFS: Final = ("AWSServiceRoleForAmazonElasticFileSystem", "elasticfilesystem.amazonaws.com")
SPOT_REQUESTS: Final = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
"""Role for spot requests and the service that it is linked to."""
ACTION: Final = "iam:CreateServiceLinkedRole"


def check_auto_scaling_role(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the role with which instances start exists, or that the deploy may create it."""
    if target.props.kms_key is not None:
        yield _role_of_key(target)
        return
    # IAM needs some seconds to spread a new role; Auto Scaling retries a minute later.
    yield from _service_role(target, *AUTO_SCALING, doubt=", and the first launches may fail once")


def _role_of_key(target: PreflightTarget) -> Finding:
    """Check that the role exists before the policy of ``kms_key`` names it, because KMS refuses unknown principals."""
    iam, (role, service) = target.clients.iam, AUTO_SCALING
    try:
        iam.get_role(RoleName=role)
    except iam.exceptions.NoSuchEntityException:
        sentence = f"there is no {role}, and the policy of kms_key cannot name it before"
        return problem("service role", sentence, f"aws iam create-service-linked-role --aws-service-name {service}")
    return ok("service role", f"{role} is there")


def check_efs_role(target: PreflightTarget) -> Iterator[Finding]:
    """Check the role with which EFS creates mount targets, if the stack has one."""
    if target.props.creates_mount_target:
        yield from _service_role(target, *EFS, doubt="")


def check_spot_role(target: PreflightTarget) -> Iterator[Finding]:
    """Check the role with which EC2 starts spot instances; Auto Scaling's own role may create it."""
    if target.props.purchase != SPOT:
        return
    iam, (role, service) = target.clients.iam, SPOT_REQUESTS
    try:
        iam.get_role(RoleName=role)
    except iam.exceptions.NoSuchEntityException:
        sentence = f"there is no {role}: EC2 Auto Scaling may create it with the first spot worker"
        fix = f"or create it first: aws iam create-service-linked-role --aws-service-name {service}"
        yield warning("service role", sentence, fix)
    else:
        yield ok("service role", f"{role} is there")


def _service_role(target: PreflightTarget, role: str, service: str, *, doubt: str) -> Iterator[Finding]:
    iam, fix = target.clients.iam, f"aws iam create-service-linked-role --aws-service-name {service}"
    try:
        iam.get_role(RoleName=role)
    except iam.exceptions.NoSuchEntityException:
        yield warning("service role", f"there is no {role}: the deploy creates it{doubt}", f"create it first: {fix}")
    else:
        yield ok("service role", f"{role} is there")
        return
    if not target.is_bootstrapped:
        return
    executor = execution_role(target)
    arn = f"arn:{target.partition}:iam::{target.account}:role/aws-service-role/{service}/{role}"
    if denied_to(target, executor, [ACTION], arn):
        yield problem("service role", f"CloudFormation, as {executor}, may not create {role} ({ACTION})", fix)
