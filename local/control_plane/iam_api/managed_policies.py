"""Attach the managed policies that a template's roles name, and delete a template's own policies; moto does neither.

A policy that the local AWS cannot evaluate fails the deploy, because the authorizer would refuse every call of a role
that has it.
The roles of `cdk bootstrap` may have one, because their calls are not authorized.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from moto.cloudformation.exceptions import ValidationError
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.exceptions import NotFoundException
from moto.iam.models import AWSManagedPolicy, Group, IAMBackend, ManagedPolicy, Role, User, iam_backends
from moto.utilities.utils import get_partition

from local.control_plane.authorization.callers import CDK_BOOTSTRAP_ROLE_PREFIX
from local.control_plane.moto_patching import add, wrap
from local.policy_evaluation.conditions import PolicyError
from local.policy_evaluation.policies import parse

_Properties = dict[str, Any]
_NAMED: Final = "ManagedPolicyArns"


def install() -> None:
    """Patch moto: extend its roles and policies."""
    wrap(Role, "create_from_cloudformation_json", _create_role)
    wrap(Role, "delete_from_cloudformation_json", _delete_role)
    add(ManagedPolicy, "delete", _delete_policy)


def update(role: Role, old: _Properties, new: _Properties) -> None:
    """Update a role in place; policies that something else has attached to it stay."""
    backend = iam_backends[role.account_id][role.partition]
    named = _find_policies(backend, new)
    _detach(role, [arn for arn in old.get(_NAMED, []) if arn not in new.get(_NAMED, [])])
    _attach(role, named)
    backend.update_role(role.name, new.get("Description", ""), new.get("MaxSessionDuration", 3600))


def _create_role(
    original: Any, name: str, definition: dict[str, Any], account_id: str, region_name: str, **kwargs: Any
) -> Role:
    backend = iam_backends[account_id][get_partition(region_name)]
    # Find them first: a creation that fails must leave no role.
    named = _find_policies(backend, definition["Properties"])
    role: Role = original(name, definition, account_id, region_name, **kwargs)
    _attach(role, named)
    return role


def _delete_role(original: Any, name: str, definition: dict[str, Any], account_id: str, region_name: str) -> None:
    """Detach the policies that the template names, without which IAM refuses to delete the role."""
    role = iam_backends[account_id][get_partition(region_name)].get_role(name)
    _detach(role, definition["Properties"].get(_NAMED, []))
    original(name, definition, account_id, region_name)


def _attach(role: Role, policies: Sequence[ManagedPolicy]) -> None:
    for policy in policies:
        if policy.arn not in role.managed_policies:
            policy.attach_to(role)


def _detach(role: Role, arns: Sequence[str]) -> None:
    for arn in arns:
        # A user may have detached it.
        if policy := role.managed_policies.get(arn):
            policy.detach_from(role)


def _find_policies(backend: IAMBackend, properties: _Properties) -> list[ManagedPolicy]:
    """Return the policies that a role names, if all exist and can be evaluated."""
    policies = [_find_policy(backend, arn) for arn in properties.get(_NAMED, [])]
    if not properties.get("RoleName", "").startswith(CDK_BOOTSTRAP_ROLE_PREFIX):
        for policy in policies:
            _check_is_evaluable(policy)
    return policies


def _find_policy(backend: IAMBackend, arn: str) -> ManagedPolicy:
    policy = backend.managed_policies.get(arn) or _find_aws_policy(backend, arn)
    if policy is None:
        raise NotFoundException(f"Policy {arn} does not exist or is not attachable.")
    return policy


def _check_is_evaluable(policy: ManagedPolicy) -> None:
    try:
        for version in policy.versions:
            parse(json.loads(version.document))
    except PolicyError as error:
        raise ValidationError(message=f"the local AWS cannot evaluate {policy.arn}: {error}") from error


def _find_aws_policy(backend: IAMBackend, arn: str) -> ManagedPolicy | None:
    """Return a policy that AWS manages. The backend gets it only now, because there are more than 1,500."""
    name = arn.rpartition("/")[2]
    data = json.loads(aws_managed_policies_data).get(name)
    policy = AWSManagedPolicy.from_data(name, backend.account_id, backend.region_name, data) if data else None
    if policy is None or policy.arn != arn:
        return None
    backend.managed_policies[arn] = policy
    return policy


def _delete_policy(policy: ManagedPolicy, _account_id: str, _region_name: str) -> None:
    """Detach the policy from all its users and delete it, like CloudFormation."""
    backend = policy.backend
    owners: list[Role | Group | User] = [*backend.roles.values(), *backend.groups.values(), *backend.users.values()]
    for owner in owners:
        if policy.arn in owner.managed_policies:
            policy.detach_from(owner)
    backend.delete_policy(policy.arn)
