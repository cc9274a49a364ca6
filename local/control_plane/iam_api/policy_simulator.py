"""Simulate a principal's policies like IAM's policy simulator, which moto lacks.

The answers are those of the authorizer: the account's administrator and the roles of `cdk bootstrap` may do anything.
"""

from collections.abc import Iterator
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException
from moto.iam.models import IAMBackend, Role, User
from moto.iam.responses import IamResponse

from local.control_plane.authorization.callers import CDK_BOOTSTRAP_ROLE_PREFIX, list_statements
from local.control_plane.buckets import bucket_policy
from local.control_plane.moto_patching import add
from local.policy_evaluation.conditions import PolicyError
from local.policy_evaluation.policies import Decision, Permission, evaluate

ADMINISTRATOR: Final = ":user/moto"
"""End of the ARN that STS answers to the user of the local AWS, who is no user of IAM."""
_DECISIONS: Final = {Decision.ALLOWED: "allowed", Decision.NOT_ALLOWED: "implicitDeny"}
"""IAM's word for each decision; the others are explicit denials."""


def install() -> None:
    """Patch moto: answer SimulatePrincipalPolicy."""
    add(IamResponse, "simulate_principal_policy", _simulate)


def _simulate(response: IamResponse) -> ActionResult:
    arn = response._get_param("PolicySourceArn")
    context = {
        entry["ContextKeyName"]: tuple(entry["ContextKeyValues"])
        for entry in response._get_param("ContextEntries") or []
    }
    permissions = [
        Permission(action=action, resource=resource, context=context)
        for action in response._get_param("ActionNames")
        for resource in response._get_param("ResourceArns") or ["*"]
    ]
    return ActionResult({"EvaluationResults": list(_results(response.backend, arn, permissions)), "IsTruncated": False})


def _results(backend: IAMBackend, arn: str, permissions: list[Permission]) -> Iterator[dict[str, Any]]:
    for permission in permissions:
        yield {
            "EvalActionName": permission.action,
            "EvalResourceName": permission.resource,
            "EvalDecision": _DECISIONS.get(_decide(backend, arn, permission), "explicitDeny"),
        }


def _decide(backend: IAMBackend, arn: str, permission: Permission) -> Decision:
    if arn.endswith(ADMINISTRATOR):
        return Decision.ALLOWED
    principals: tuple[Role | User, ...] = (*backend.roles.values(), *backend.users.values())
    principal = next((principal for principal in principals if principal.arn == arn), None)
    if principal is None:
        raise NotFoundException(f"{arn} does not exist.")
    if principal.name.startswith(CDK_BOOTSTRAP_ROLE_PREFIX):
        return Decision.ALLOWED
    try:
        return evaluate(permission, list_statements(backend, principal), bucket_policy(permission.resource))
    except PolicyError:
        # The authorizer refuses the calls of a principal whose policies are not understood.
        return Decision.NOT_ALLOWED
