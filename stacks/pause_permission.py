"""Allow a role to pause a cluster: to set the sizes of its two Auto Scaling groups to zero.

The same call may also change other attributes of a group, but only by setting its size to zero (docs/decisions/088).
"""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from bootstrap.contract import NODE_TYPES, group_name
from stacks.cluster_role import ClusterRole


def allow_pause(role: ClusterRole, cluster_name: str) -> None:
    """Add the permission, whose conditions refuse a call with another MinSize or MaxSize, or without one of them."""
    groups = [f"autoScalingGroup:*:autoScalingGroupName/{group_name(cluster_name, t)}" for t in NODE_TYPES]
    place = f"{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}"
    role.allow(
        "Pause",
        iam.PolicyStatement(
            actions=["autoscaling:UpdateAutoScalingGroup"],
            resources=[f"arn:{cdk.Aws.PARTITION}:autoscaling:{place}:{group}" for group in groups],
            conditions={"NumericEquals": {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}},
        ),
    )
    for group in groups:
        arn = f"arn:<AWS::Partition>:autoscaling:<AWS::Region>:<AWS::AccountId>:{group}"
        cdk.Validations.of(role).acknowledge(
            cdk.Acknowledgment(
                id=f"AwsSolutions::AwsSolutions-IAM5[Resource::{arn}]",
                reason="the star is the ID that AWS gives the only group of this name",
            )
        )
