"""Say what the nodes' roles may do with the user's key for the table and the bucket (setting kms_key)."""

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
"""What the services do with the user's key in a node's name."""


def allow_key(role: ClusterRole, key: str, *, before: tuple[IConstruct, ...]) -> None:
    """Allow a role the key before CloudFormation encrypts anything with it.

    Each key has a policy of its own: CloudFormation creates the new key's first and deletes the old key's last, so that
    running nodes reach the table and the bucket all through a change.
    """
    policy = role.allow_apart(f"Key{key.rpartition('/')[2]}", *_statements(key))
    for resource in before:
        resource.node.add_dependency(policy)


def _statements(key: str) -> Iterator[iam.PolicyStatement]:
    """Allow the key to the two services alone: a node cannot decrypt anything with it by itself.

    For a table the CDK's own grants name the same actions (aws-dynamodb, ``grantReadWriteData``).
    """
    for service, actions in KEY_ACTIONS.items():
        via = f"{service}.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"
        yield iam.PolicyStatement(
            actions=list(actions), resources=[key], conditions={"StringEquals": {"kms:ViaService": via}}
        )
