"""Define the table that holds the cluster's state, and is deleted with the cluster."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

from bootstrap import contract


class ClusterTable(Construct):
    """One DynamoDB table on demand, deleted with the stack: the agents rebuild every record."""

    def __init__(
        self, scope: Construct, construct_id: str, *, key: kms.IKey | None, point_in_time_recovery: bool
    ) -> None:
        super().__init__(scope, construct_id)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=contract.TABLE_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if key else None,
            encryption_key=key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            )
            if point_in_time_recovery
            else None,
        )
        if point_in_time_recovery:
            return
        cdk.Validations.of(self.table).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-DDB3",
                reason="the agents rebuild every record, so there is nothing to recover",
            )
        )
