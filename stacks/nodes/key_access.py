"""Grant the nodes' roles the use of the user's key for the table and the bucket (setting kms_key)."""

from collections.abc import Iterator, Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from stacks.cluster_role import ClusterRole

KEY_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("kms:Decrypt", "kms:GenerateDataKey"),
    "dynamodb": (
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:Encrypt",
        "kms:GenerateDataKey",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    ),
}
"""Actions that the services perform with the user's key on a node's behalf."""


def grant_key(role: ClusterRole, key: str, *, before: tuple[IConstruct, ...]) -> None:
    """Allow a role to use the key before CloudFormation encrypts anything with it.

    Each key has its own policy: CloudFormation creates the new key's policy first and deletes the old key's last, so
    that running nodes can reach the table and the bucket throughout a change.
    """
    policy = role.allow_in_separate_policy(f"Key{key.rpartition('/')[2]}", *_statements(key))
    for resource in before:
        resource.node.add_dependency(policy)


def _statements(key: str) -> Iterator[iam.PolicyStatement]:
    """Allow only the two services to use the key, so that a node cannot decrypt anything with it directly.

    For a table, the CDK's own grants name the same actions (aws-dynamodb, ``grantReadWriteData``).
    """
    for service, actions in KEY_ACTIONS.items():
        via = f"{service}.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"
        yield iam.PolicyStatement(
            actions=list(actions), resources=[key], conditions={"StringEquals": {"kms:ViaService": via}}
        )
