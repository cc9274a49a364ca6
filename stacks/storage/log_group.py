"""Define the log group of the nodes, which outlives the stack: it shows why a deploy was rolled back."""

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct


class ClusterLogs(Construct):
    """A log group that survives rollback and destroy; its name is generated, so a new deploy creates another."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey | None) -> None:
        super().__init__(scope, construct_id)
        self.log_group = logs.LogGroup(
            self,
            "LogGroup",
            retention=logs.RetentionDays.TWO_WEEKS,
            encryption_key=key,
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
