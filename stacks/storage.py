"""What the cluster remembers: a table that goes with the stack, a bucket that stays."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from bootstrap import contract


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


class ClusterBucket(Construct):
    """A place that outlives nodes and cluster: checkpoints must not go because a cluster does."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            lifecycle_rules=[s3.LifecycleRule(abort_incomplete_multipart_upload_after=cdk.Duration.days(7))],
            # Kept on destroy, yet gone with a creation that was rolled back: then it is empty.
            removal_policy=cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
        cdk.Validations.of(self.bucket).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-S1",
                reason="access logs of checkpoints cost more than they tell; a user adds them to the bucket",
            )
        )
