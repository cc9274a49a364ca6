"""Decide by an EFS file system's policy whether it admits a client without IAM, as the nodes are.

AWS: "Using IAM to control access to file systems" (Amazon EFS User Guide).
"""

from collections.abc import Mapping
from typing import Any, Final

from local.policy_evaluation.policies import Decision, Permission, Statement, evaluate, parse

_MOUNT: Final = "elasticfilesystem:ClientMount"


def parse_policy(policy: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Parse a file system's policy, whose statements may leave out the resource. Raises PolicyError."""
    statements = policy.get("Statement", [])
    statements = statements if isinstance(statements, list) else [statements]
    complete = [s if "NotResource" in s else {"Resource": "*", **s} for s in statements]
    return parse({**policy, "Statement": complete}, of_resource=True)


def admits(policy: Mapping[str, Any], arn: str, *, encrypted: bool) -> bool:
    """Return True if a client without IAM may mount the file system through a mount target, with or without TLS.

    Such a client has no ARN, so that only statements about every principal ("*") apply to it.
    """
    keys = {"aws:SecureTransport": str(encrypted).lower(), "elasticfilesystem:AccessedViaMountTarget": "true"}
    context = {key: (value,) for key, value in keys.items()}
    mount = Permission(action=_MOUNT, resource=arn, context=context)
    return evaluate(mount, (), parse_policy(policy)) is Decision.ALLOWED
