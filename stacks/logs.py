"""The cluster's log group, which outlives the stack: it tells why a deploy was rolled back."""

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from constructs import Construct


class ClusterLogs(Construct):
    """Kept on rollback and destroy; its name is generated, so that the next deploy makes its own."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.log_group = logs.LogGroup(
            self,
            "LogGroup",
            retention=logs.RetentionDays.TWO_WEEKS,
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
