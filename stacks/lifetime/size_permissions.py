"""Allow a role to set the sizes of a cluster's two Auto Scaling groups: to zero, or to what the settings declare.

IAM cannot restrict the call to sizes. It may also change the group's other attributes, as long as it includes one of
these sizes (docs/decisions/088).
"""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import NODE_TYPES, NodeType, group_name
from stacks.cluster_role import ClusterRole


def allow_zero_sizes(role: ClusterRole, cluster_name: str) -> None:
    """Add the permission; its conditions refuse a call with another MinSize or MaxSize, or lacking one of them."""
    groups = _groups(cluster_name)
    _allow(role, "Pause", [*groups.values()], min_size=0, max_size=0)


def allow_declared_sizes(role: ClusterRole, cluster_name: str, sizes: ClusterSizes) -> None:
    """Add the permission to give each group its own size, under the same conditions."""
    for node_type, group in _groups(cluster_name).items():
        _allow(
            role,
            f"Start{node_type.capitalize()}",
            [group],
            min_size=sizes[node_type].min_size,
            max_size=sizes[node_type].max_size,
        )


def _groups(cluster_name: str) -> Mapping[NodeType, str]:
    return {each: f"autoScalingGroup:*:autoScalingGroupName/{group_name(cluster_name, each)}" for each in NODE_TYPES}


def _allow(role: ClusterRole, purpose: str, groups: list[str], *, min_size: int, max_size: int) -> None:
    region_and_account = f"{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}"
    role.allow(
        purpose,
        iam.PolicyStatement(
            actions=["autoscaling:UpdateAutoScalingGroup"],
            resources=[f"arn:{cdk.Aws.PARTITION}:autoscaling:{region_and_account}:{group}" for group in groups],
            conditions={"NumericEquals": {"autoscaling:MinSize": str(min_size), "autoscaling:MaxSize": str(max_size)}},
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
