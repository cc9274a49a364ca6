"""Grant the nodes' roles access to the user's own data (settings data_buckets, data_keys, policy_arns)."""

from collections.abc import Iterator

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from stacks.cluster_role import ClusterRole
from stacks.settings.storage import READS, WRITES, DataBucket, DataSettings


def grant_data(role: ClusterRole, settings: DataSettings) -> None:
    """Let a role reach the buckets that the user names, each only below its prefix, and nothing else."""
    statements = [statement for bucket in settings.buckets for statement in _bucket_statements(bucket)]
    role.allow("Data", *statements, *([_key_statement(settings)] if settings.data_keys else []))
    for bucket in settings.buckets:
        resource = f"arn:<AWS::Partition>:s3:::{bucket.objects}"
        _acknowledge(role, f"IAM5[Resource::{resource}]", "datasets have names that only the user's jobs know")
    for number, arn in enumerate(settings.policy_arns):
        role.add_managed_policy(iam.ManagedPolicy.from_managed_policy_arn(role, f"Policy{number}", arn))
        nag_arn = arn.replace("arn:aws:", "arn:<AWS::Partition>:", 1)
        for each in {arn, nag_arn}:
            _acknowledge(role, f"IAM4[Policy::{each}]", "the user names it in policy_arns")


def _bucket_statements(bucket: DataBucket) -> Iterator[iam.PolicyStatement]:
    arn = f"arn:{cdk.Aws.PARTITION}:s3:::"
    below = {"StringLike": {"s3:prefix": [bucket.prefix, f"{bucket.prefix}/*"]}} if bucket.prefix else None
    yield iam.PolicyStatement(actions=["s3:ListBucket"], resources=[f"{arn}{bucket.name}"], conditions=below)
    actions = [*READS, *(WRITES if bucket.is_writable else ())]
    yield iam.PolicyStatement(actions=actions, resources=[f"{arn}{bucket.objects}"])


def _key_statement(settings: DataSettings) -> iam.PolicyStatement:
    """Allow the keys only through S3, so that a node cannot decrypt anything with them directly."""
    regions = sorted({key.split(":")[3] for key in settings.data_keys})
    writes = any(bucket.is_writable for bucket in settings.buckets)
    return iam.PolicyStatement(
        actions=["kms:Decrypt", *(["kms:GenerateDataKey"] if writes else [])],
        resources=list(settings.data_keys),
        conditions={"StringEquals": {"kms:ViaService": [f"s3.{region}.{cdk.Aws.URL_SUFFIX}" for region in regions]}},
    )


def _acknowledge(role: ClusterRole, rule: str, reason: str) -> None:
    identifier = f"AwsSolutions::AwsSolutions-{rule}"
    cdk.Validations.of(role).acknowledge(cdk.Acknowledgment(id=identifier, reason=reason))
