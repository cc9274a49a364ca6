"""Define the bucket for checkpoints, job records and MXNet environments, which outlives the cluster."""

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from bootstrap import contract

OLD_VERSIONS_KEPT: Final = cdk.Duration.days(14)
"""Time for which an overwritten or deleted version is kept: as long as the log that explains it. Longer is expensive: a
job that uploads its newest checkpoint every ten minutes leaves 144 versions per day."""
UPLOADS_KEPT: Final = cdk.Duration.days(7)
"""Time for which the parts of an interrupted multipart upload are kept; nodes may not abort one."""


def cluster_bucket(scope: Construct, *, cluster_name: str, adopted: str | None, key: kms.IKey | None) -> s3.IBucket:
    """Return the bucket that the user names, which the stack does not change, or create one."""
    if adopted is not None:
        return s3.Bucket.from_bucket_name(scope, "AdoptedCheckpoints", adopted)
    return ClusterBucket(scope, "Checkpoints", cluster_name=cluster_name, key=key).bucket


class ClusterBucket(Construct):
    """A versioned bucket that survives the cluster, so that no mistake deletes a checkpoint.

    CloudFormation generates its name, so the next deploy creates another bucket.
    """

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str, key: kms.IKey | None) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            # With this, S3 calls KMS only occasionally, not for each object.
            bucket_key_enabled=True if key else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            # No node may delete a version (stacks/nodes/roles.py), so an overwritten or deleted object can be restored.
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=OLD_VERSIONS_KEPT,
                    expired_object_delete_marker=True,
                    abort_incomplete_multipart_upload_after=UPLOADS_KEPT,
                )
            ],
            # Do not use RETAIN_ON_UPDATE_OR_DELETE: rolling a creation back would delete the bucket, which S3 refuses
            # as soon as a node has stored anything there.
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
        if self.bucket.policy is not None:
            # The bucket stays, and so does its refusal of requests without TLS.
            self.bucket.policy.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
        # `dlcluster why` finds the bucket by this tag when the stack is gone.
        cdk.Tags.of(self.bucket).add(contract.CLUSTER_TAG, cluster_name)
        cdk.Validations.of(self.bucket).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-S1",
                reason="access logs of checkpoints cost more than they tell; a user adds them to the bucket",
            )
        )
