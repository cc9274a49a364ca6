"""Define the flow log of the cluster's own VPC: who connected to whom, on which ports."""

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.cluster_role import ClusterRole, RoleRules
from stacks.storage.log_group import ClusterLogs

AGGREGATION_S: Final = 600
"""Seconds of traffic per record; at this length, the few long connections of a training run create few records."""


class FlowLogs(Construct):
    """A flow log of all traffic with its log group, which outlives the stack like the nodes' log group."""

    def __init__(
        self, scope: Construct, construct_id: str, *, vpc: ec2.IVpc, key: kms.IKey | None, rules: RoleRules
    ) -> None:
        super().__init__(scope, construct_id)
        self.log_group = ClusterLogs(self, "Logs", key=key).log_group
        role = ClusterRole(self, "Role", principal=_service(self), name="flow-logs", rules=rules)
        # Do not use the construct for flow logs: its role may also pass itself on.
        role.allow(
            "Delivery",
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                resources=[self.log_group.log_group_arn],
            ),
        )
        log = ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_id=vpc.vpc_id,
            resource_type="VPC",
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_destination=cdk.Stack.of(self).format_arn(
                service="logs",
                resource="log-group",
                resource_name=self.log_group.log_group_name,
                arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
            ),
            deliver_logs_permission_arn=role.role_arn,
            max_aggregation_interval=AGGREGATION_S,
        )
        log.node.add_dependency(role)
        cdk.Tags.of(log).add("Name", rules.cluster_name)


def _service(scope: Construct) -> iam.IPrincipal:
    """Return the service principal of flow logs, limited to this account."""
    flow_logs = cdk.Stack.of(scope).format_arn(service="ec2", resource="vpc-flow-log", resource_name="*")
    return iam.ServicePrincipal(
        "vpc-flow-logs.amazonaws.com",
        conditions={
            "StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": flow_logs},
        },
    )
