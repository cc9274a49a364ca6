"""Grant the nodes' roles access to the user's secrets (settings secrets, secret_keys)."""

from collections.abc import Iterator
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from stacks.cluster_role import ClusterRole
from stacks.settings.security import SecretsSettings

_RANDOM: Final = "-??????"
"""Matches the six characters at the end of a secret's ARN that only AWS knows (Secrets Manager User Guide, policy
examples)."""


def grant_secrets(role: ClusterRole, settings: SecretsSettings) -> None:
    """Let a role read exactly the secrets that the user names."""
    role.allow("Secrets", *_statements(settings))


def _statements(settings: SecretsSettings) -> Iterator[iam.PolicyStatement]:
    parameters, secrets = settings.secret_parameters, settings.managed_secrets
    if parameters:
        arns = [_arn("ssm", f"parameter/{name.removeprefix('/')}") for name in parameters]
        yield iam.PolicyStatement(actions=["ssm:GetParameter"], resources=arns)
    if secrets:
        arns = [
            text if text.startswith("arn:") else _arn("secretsmanager", f"secret:{text}{_RANDOM}") for text in secrets
        ]
        yield iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=arns)
    if settings.secret_keys:
        services = [*(["ssm"] if parameters else []), *(["secretsmanager"] if secrets else [])]
        yield _key_statement(settings.secret_keys, services)


def _key_statement(keys: tuple[str, ...], services: list[str]) -> iam.PolicyStatement:
    """Allow the keys only through the two services, so that a node cannot decrypt anything with them directly."""
    regions = sorted({key.split(":")[3] for key in keys})
    via = [f"{service}.{region}.{cdk.Aws.URL_SUFFIX}" for service in services for region in regions]
    return iam.PolicyStatement(
        actions=["kms:Decrypt"], resources=list(keys), conditions={"StringEquals": {"kms:ViaService": via}}
    )


def _arn(service: str, resource: str) -> str:
    return f"arn:{cdk.Aws.PARTITION}:{service}:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:{resource}"
