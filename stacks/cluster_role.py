"""Define the roles of a cluster: their names, and where their permissions stand."""

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.settings.props import ClusterProps


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleRules:
    """What an organisation demands of the roles that its stacks make."""

    cluster_name: str
    name_prefix: str | None = None
    """Start of every role's name; without one CloudFormation names the roles."""
    has_managed_policies: bool = False
    """Whether permissions stand in managed policies, which have versions, and not in the roles themselves."""

    @classmethod
    def of(cls, props: ClusterProps) -> "RoleRules":
        """Return what the settings ask for."""
        return cls(
            cluster_name=props.cluster_name,
            name_prefix=props.role_name_prefix,
            has_managed_policies=props.hardened,
        )


class ClusterRole(iam.Role):
    """A role that follows the rules; ``name`` ends its name where the rules give it one."""

    def __init__(
        self, scope: Construct, construct_id: str, *, principal: iam.IPrincipal, name: str, rules: RoleRules
    ) -> None:
        # IAM's names are the same in all regions.
        named = f"{rules.name_prefix}{rules.cluster_name}-{cdk.Stack.of(scope).region}-{name}"
        super().__init__(
            scope, construct_id, assumed_by=principal, role_name=named if rules.name_prefix is not None else None
        )
        self._has_managed_policies = rules.has_managed_policies

    @property
    def of_instances(self) -> iam.IRole:
        """Return the role for the construct of the instances, which would put a permission into the role itself."""
        return self.without_policy_updates() if self._has_managed_policies else self

    def allow(self, purpose: str, *statements: iam.PolicyStatement) -> None:
        """Add permissions; each purpose has a managed policy of its own, which has room for 6,144 characters."""
        if not self._has_managed_policies:
            for statement in statements:
                self.add_to_policy(statement)
        elif statements:
            # What is denied comes last: cdk-nag reads from "s3:*" in a Deny to the next Allow, and reports full access.
            ordered = sorted(statements, key=lambda each: each.effect == iam.Effect.DENY)
            iam.ManagedPolicy(self, f"{purpose}Policy", roles=[self], statements=ordered)


def limit_roles(scope: Construct, boundary: str) -> None:
    """Give every role of the scope a permissions boundary, named or by its ARN."""
    if boundary.startswith("arn:"):
        policy = iam.ManagedPolicy.from_managed_policy_arn(scope, "PermissionsBoundary", boundary)
    else:
        policy = iam.ManagedPolicy.from_managed_policy_name(scope, "PermissionsBoundary", boundary)
    iam.PermissionsBoundary.of(scope).apply(policy)
