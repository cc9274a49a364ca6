"""What a node may do in AWS. Every process on a node has these rights, so they are few."""

from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from bootstrap import contract

UNSCOPED_ACTIONS: Final = ("autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances")
"""The only actions allowed on ``*``: AWS defines no resource type for either, so no narrower
statement exists (Service Authorization Reference, Auto Scaling and EC2)."""

OWN_RECORD: Final = "${aws:userid}"
"""IAM's variable for ``<role id>:<instance id>``, the key of a node's own record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResources:
    """ARNs of what nodes work with."""

    table: str
    log_group: str
    bucket: str
    bundle: str
    """The one S3 object; ``Asset.grant_read`` would open its whole bucket."""


class NodeRoles(Construct):
    """The master's role and the workers'."""

    def __init__(self, scope: Construct, construct_id: str, *, resources: NodeResources) -> None:
        super().__init__(scope, construct_id)
        self.master = self._role("Master", [*_every_node(resources), *_master(resources)])
        cdk.Validations.of(self.master).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-IAM5[Resource::*]",
                reason="AWS defines no resource for the Describe calls of UNSCOPED_ACTIONS",
            )
        )
        self.worker = self._role("Worker", [*_every_node(resources), *_worker(resources)])
        bucket, _ = cdk.Stack.of(self).resolve(resources.bucket)["Fn::GetAtt"]
        cdk.Validations.of(self).acknowledge(
            cdk.Acknowledgment(
                id=f"AwsSolutions::AwsSolutions-IAM5[Resource::<{bucket}.Arn>/*]",
                reason="checkpoints have names that only the user's jobs know",
            )
        )

    def _role(self, construct_id: str, statements: list[iam.PolicyStatement]) -> iam.Role:
        role = iam.Role(self, construct_id, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        for statement in statements:
            role.add_to_policy(statement)
        return role


def _every_node(resources: NodeResources) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(actions=["s3:GetObject"], resources=[resources.bundle]),
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[resources.log_group]),
        iam.PolicyStatement(actions=["cloudformation:SignalResource"], resources=[cdk.Aws.STACK_ID]),
        _records(["dynamodb:PutItem"], resources.table, keys=[OWN_RECORD]),
        iam.PolicyStatement(actions=["s3:ListBucket"], resources=[resources.bucket]),
        iam.PolicyStatement(
            actions=["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], resources=[f"{resources.bucket}/*"]
        ),
    ]


def _worker(resources: NodeResources) -> list[iam.PolicyStatement]:
    return [_records(["dynamodb:GetItem"], resources.table, keys=[contract.MEMBERSHIP_ID])]


def _master(resources: NodeResources) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(actions=["dynamodb:GetItem", "dynamodb:BatchGetItem"], resources=[resources.table]),
        _records(["dynamodb:PutItem"], resources.table, keys=[contract.MEMBERSHIP_ID]),
        iam.PolicyStatement(actions=list(UNSCOPED_ACTIONS), resources=["*"]),
    ]


def _records(actions: list[str], table: str, *, keys: list[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        actions=actions,
        resources=[table],
        conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": keys}},
    )
