"""Define `ClusterRole`, the base of every role: its name, and permissions that are inline or in managed policies."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps

POLICY_SIZE: Final = 6144
"""Longest managed policy in characters, without white space ("IAM and AWS STS quotas", IAM User Guide)."""
_ENVELOPE: Final = len('{"Version":"2012-10-17","Statement":}')
_SETTINGS: Final[Mapping[str, str]] = {"Data": "data_buckets and data_keys", "Secrets": "secrets and secret_keys"}
"""Settings, by the purpose of the policy that they fill."""
_LONGEST_VALUES: Final[Mapping[str, str]] = {
    "AWS::Partition": "aws-us-gov",
    "AWS::Region": "ap-southeast-1",
    "AWS::AccountId": "123456789012",
    "AWS::URLSuffix": "amazonaws.com.cn",
}
_LONG_NAME: Final = "x" * 100
"""Placeholder for a name or an ARN that CloudFormation generates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleRules:
    """An organization's requirements for the roles that its stacks create."""

    cluster_name: str
    name_prefix: str | None = None
    """Start of every role's name; if empty, CloudFormation names the roles."""
    has_managed_policies: bool = False
    """True if permissions are in managed policies, which have versions, instead of in the roles themselves."""

    @classmethod
    def of(cls, props: ClusterProps) -> "RoleRules":
        """Return the rules that the settings request."""
        return cls(
            cluster_name=props.cluster_name,
            name_prefix=props.role_name_prefix,
            has_managed_policies=props.hardened,
        )


class ClusterRole(iam.Role):
    """A role that follows the rules; its name ends with ``name`` if they define names."""

    def __init__(
        self, scope: Construct, construct_id: str, *, principal: iam.IPrincipal, name: str, rules: RoleRules
    ) -> None:
        # IAM's names are the same in all regions.
        full_name = f"{rules.name_prefix}{rules.cluster_name}-{cdk.Stack.of(scope).region}-{name}"
        super().__init__(
            scope, construct_id, assumed_by=principal, role_name=full_name if rules.name_prefix is not None else None
        )
        self._has_managed_policies = rules.has_managed_policies

    @property
    def launch_template_role(self) -> iam.IRole:
        """Return the role to pass to the launch template.

        With managed policies it is an immutable view, because the construct would otherwise add an inline policy.
        """
        return self.without_policy_updates() if self._has_managed_policies else self

    def allow(self, purpose: str, *statements: iam.PolicyStatement) -> None:
        """Add permissions; each purpose has its own managed policy, with room for 6,144 characters."""
        if not self._has_managed_policies:
            for statement in statements:
                self.add_to_policy(statement)
        elif statements:
            self.allow_in_separate_policy(purpose, *statements)

    def allow_in_separate_policy(
        self, purpose: str, *statements: iam.PolicyStatement
    ) -> iam.Policy | iam.ManagedPolicy:
        """Add permissions in a separate policy, for which other resources can wait."""
        name = f"{purpose}Policy"
        if not self._has_managed_policies:
            return iam.Policy(self, name, roles=[self], statements=list(statements))
        document = cdk.Stack.of(self).resolve([statement.to_statement_json() for statement in statements])
        if (size := len(json.dumps(_with_longest_values(document), separators=(",", ":"))) + _ENVELOPE) > POLICY_SIZE:
            message = f"must need permissions of at most {POLICY_SIZE} characters with hardened, got {size}"
            raise SettingsError(f"{_SETTINGS.get(purpose, 'the settings')} {message}: name fewer or shorter ones")
        # Denials come last: cdk-nag reads from "s3:*" in a Deny to the next Allow, and reports full access.
        ordered = sorted(statements, key=lambda statement: statement.effect == iam.Effect.DENY)
        return iam.ManagedPolicy(self, name, roles=[self], statements=ordered)


def _with_longest_values(value: Any) -> Any:
    """Return a part of a policy in which text as long as AWS's replaces the template's references."""
    if isinstance(value, list):
        return [_with_longest_values(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        return "".join(_with_longest_values(part) for part in value["Fn::Join"][1])
    if "Ref" in value:
        return _LONGEST_VALUES.get(value["Ref"], _LONG_NAME)
    if any(key.startswith("Fn::") for key in value):
        return _LONG_NAME
    return {key: _with_longest_values(each) for key, each in value.items()}


def apply_permissions_boundary(scope: Construct, boundary: str) -> None:
    """Give every role of the scope a permissions boundary, given as a name or ARN."""
    if boundary.startswith("arn:"):
        policy = iam.ManagedPolicy.from_managed_policy_arn(scope, "PermissionsBoundary", boundary)
    else:
        policy = iam.ManagedPolicy.from_managed_policy_name(scope, "PermissionsBoundary", boundary)
    iam.PermissionsBoundary.of(scope).apply(policy)
