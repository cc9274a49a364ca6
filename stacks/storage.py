"""What the cluster remembers: a table that goes with the stack, a bucket that stays."""

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from bootstrap import contract

OLD_VERSIONS_KEPT: Final = cdk.Duration.days(14)
"""How long a version outlives its overwriting or deletion: as long as the log that tells what happened. Longer is
dear: a training that copies its newest checkpoint here every ten minutes leaves 144 versions of it a day."""
UPLOADS_KEPT: Final = cdk.Duration.days(7)
"""Nodes may not give an upload in parts up; what an interrupted one leaves is cleared by then."""


class ClusterTable(Construct):
    """One table on demand. What it holds is rebuilt by the agents, so nothing of it is kept."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=contract.TABLE_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        cdk.Validations.of(self.table).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-DDB3",
                reason="the agents rebuild every record, so there is nothing to recover",
            )
        )


def cluster_bucket(scope: Construct, *, cluster_name: str, adopted: str | None) -> s3.IBucket:
    """Find the bucket that the user names, which the stack leaves as it is, or make one."""
    if adopted is not None:
        return s3.Bucket.from_bucket_name(scope, "AdoptedCheckpoints", adopted)
    return ClusterBucket(scope, "Checkpoints", cluster_name=cluster_name).bucket


class ClusterBucket(Construct):
    """A place that outlives nodes and cluster: checkpoints must not go because a cluster does, or a mistake is made.

    Its name is generated, so that the next deploy makes its own.
    """

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            # No node may delete a version (stacks/permissions.py): an overwritten or deleted object comes back.
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=OLD_VERSIONS_KEPT,
                    expired_object_delete_marker=True,
                    abort_incomplete_multipart_upload_after=UPLOADS_KEPT,
                )
            ],
            # Not RETAIN_ON_UPDATE_OR_DELETE: a creation that is rolled back would delete it, and S3 refuses
            # that as soon as a node has put anything there.
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
        if self.bucket.policy is not None:
            # A bucket that is kept goes on refusing requests without TLS.
            self.bucket.policy.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
        # By this `dlcluster why` finds it when the stack is gone.
        cdk.Tags.of(self.bucket).add(contract.CLUSTER_TAG, cluster_name)
        cdk.Validations.of(self.bucket).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-S1",
                reason="access logs of checkpoints cost more than they tell; a user adds them to the bucket",
            )
        )
