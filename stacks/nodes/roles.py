"""Define the IAM roles of the nodes. Every process on a node has its role's permissions, so these are few."""

from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from bootstrap import contract
from stacks.cluster_role import ClusterRole, RoleRules

UNSCOPED_ACTIONS: Final = ("autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances")
"""The only actions allowed on ``*``, because AWS defines no resource type for them (Service Authorization Reference,
Auto Scaling and EC2)."""
DESCRIBE_LUSTRE: Final = "fsx:DescribeFileSystems"
"""Action on ``*`` of a master with Lustre; FSx defines no resource for it (Service Authorization Reference), so that a
statement with the file system's ARN would allow nothing."""

CHANNEL_ACTIONS: Final = (
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""Actions that the image's SSM agent needs for sessions, besides ssm:UpdateInstanceInformation; on ``*``, because AWS
defines no resource for an instance's channels. The managed policy AmazonSSMManagedInstanceCore would also let each node
read every parameter of the account."""

SHARED_RECORDS: Final = (
    contract.MEMBERSHIP_ID,
    contract.GENERATION_ID,
    contract.MXNET_ENVIRONMENT_RECORD_ID,
    contract.PAUSE_ID,
)
"""Records that every node reads; only the master's role may write them."""
RECORD_WRITES: Final = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem")
"""Actions that change records of the table."""
OBJECT_CHANGES: Final = ("s3:Put*", "s3:Delete*", "s3:RestoreObject")
"""Actions that change objects, their versions and delete markers."""
BUCKET_CHANGES: Final = (
    "s3:PutLifecycleConfiguration",
    "s3:PutBucketPolicy",
    "s3:DeleteBucketPolicy",
    "s3:PutBucketVersioning",
)
"""Actions that would let old versions expire, or give others access."""
TAG_CHANGES: Final = ("autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags")
"""Actions that change the tags of a group; the master's contain the team's SSH keys."""
OWN_RECORD: Final = "${aws:userid}"
"""IAM's variable for ``<role ID>:<instance ID>``, the key of a node's own record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResources:
    """ARNs of the resources that nodes use."""

    table: str
    log_group: str
    bucket: str
    bundle: str
    """The bundle's S3 object; ``Asset.grant_read`` would grant its complete bucket."""
    elastic_ip: str | None
    """The master's Elastic IP, if the cluster has one."""
    creates_file_system: bool = False
    """True if the stack creates the shared file system, whose ID the master must query."""
    has_lustre: bool = False
    """True if the nodes mount the user's Lustre file system, whose mount name the master must query."""
    setup: str | None = None
    """S3 object of the user's setup, if any."""


class NodeRoles(Construct):
    """The role of the master and the role of the workers."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        resources: NodeResources,
        private: bool,
        rules: RoleRules,
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster_name = rules.cluster_name
        sessions = self._session_statements() if private else []
        self.master = self._create_role(
            "Master",
            rules,
            [
                *_common_statements(resources),
                self._deny_tag_changes(),
                *self._own_group_statements(contract.MASTER),
                *_master_statements(resources),
                *_shared_storage_statements(resources),
                *self._elastic_ip_statements(resources.elastic_ip),
                *sessions,
            ],
        )
        _acknowledge(self.master, "*", f"AWS defines no resource for {' and '.join(UNSCOPED_ACTIONS)}")
        self.worker = self._create_role(
            "Worker",
            rules,
            [
                *_common_statements(resources),
                self._deny_tag_changes(),
                *self._own_group_statements(contract.WORKER),
                *_worker_statements(resources),
                *sessions,
            ],
        )
        if private:
            self._acknowledge_sessions()
        self._acknowledge_groups()
        _acknowledge(
            self,
            f"{self._nag_arn(resources.bucket)}/*",
            "checkpoints have names that only the user's jobs know",
        )

    def _deny_tag_changes(self) -> iam.PolicyStatement:
        """Deny changes of the tags that carry the team's SSH keys to the nodes; policy_arns may allow all groups."""
        group = contract.group_name(self._cluster_name, contract.MASTER)
        groups = self._arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{group}")
        return iam.PolicyStatement(effect=iam.Effect.DENY, actions=list(TAG_CHANGES), resources=[groups])

    def _session_statements(self) -> list[iam.PolicyStatement]:
        """Allow the SSM agent of each node to serve the sessions that reach a private cluster."""
        instances = self._arn("ec2", "instance/*")
        return [
            iam.PolicyStatement(actions=["ssm:UpdateInstanceInformation"], resources=[instances]),
            iam.PolicyStatement(actions=list(CHANNEL_ACTIONS), resources=["*"]),
        ]

    def _acknowledge_sessions(self) -> None:
        nag_arn = "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*"
        _acknowledge(self.worker, nag_arn, "IAM cannot name the instance that a role's session belongs to")
        _acknowledge(self.worker, "*", "AWS defines no resource for the actions of CHANNEL_ACTIONS")

    def _nag_arn(self, arn: str) -> str:
        """Render an ARN in cdk-nag's form. A given bucket's ARN is text, except for the partition."""
        resolved = cdk.Stack.of(self).resolve(arn)
        if isinstance(resolved, str):
            return resolved
        [(function, argument)] = resolved.items()
        if function == "Fn::GetAtt":
            return f"<{'.'.join(argument)}>"
        return "".join(part if isinstance(part, str) else f"<{part['Ref']}>" for part in argument[1])

    def _acknowledge_groups(self) -> None:
        stack = "<AWS::Region>:<AWS::AccountId>"
        groups = f"arn:<AWS::Partition>:autoscaling:{stack}:autoScalingGroup:*:autoScalingGroupName"
        for role, node_type in zip((self.master, self.worker), contract.NODE_TYPES, strict=True):
            group = contract.group_name(self._cluster_name, node_type)
            _acknowledge(role, f"{groups}/{group}", "the star is the ID that AWS gives the only group of this name")
        instances = f"arn:<AWS::Partition>:ec2:{stack}:instance/*"
        _acknowledge(self.master, instances, "a condition narrows it to the instances of the master's group")

    def _own_group_statements(self, node_type: contract.NodeType) -> list[iam.PolicyStatement]:
        """Allow a node to request its own replacement and to complete its lifecycle hook.

        IAM has no narrower resource than the group (Service Authorization Reference, Amazon EC2 Auto Scaling).
        """
        group = contract.group_name(self._cluster_name, node_type)
        return [
            iam.PolicyStatement(
                actions=[
                    "autoscaling:CompleteLifecycleAction",
                    "autoscaling:RecordLifecycleActionHeartbeat",
                    "autoscaling:SetInstanceHealth",
                ],
                resources=[self._arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{group}")],
            )
        ]

    def _elastic_ip_statements(self, elastic_ip: str | None) -> list[iam.PolicyStatement]:
        """Allow a master to associate this one Elastic IP with instances of the master's group."""
        if elastic_ip is None:
            return []
        group = contract.group_name(self._cluster_name, contract.MASTER)
        return [
            iam.PolicyStatement(actions=["ec2:AssociateAddress"], resources=[elastic_ip]),
            iam.PolicyStatement(
                actions=["ec2:AssociateAddress"],
                resources=[self._arn("ec2", "instance/*")],
                conditions={"StringEquals": {f"aws:ResourceTag/{contract.GROUP_TAG}": group}},
            ),
        ]

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{cdk.Aws.PARTITION}:{service}:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:{resource}"

    def _create_role(self, construct_id: str, rules: RoleRules, statements: list[iam.PolicyStatement]) -> ClusterRole:
        principal = iam.ServicePrincipal("ec2.amazonaws.com")
        role = ClusterRole(self, construct_id, principal=principal, name=construct_id.lower(), rules=rules)
        role.allow("Node", *statements)
        return role


def _acknowledge(scope: Construct, resource: str, reason: str) -> None:
    """Tell cdk-nag why a resource needs its wildcard."""
    rule = f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]"
    cdk.Validations.of(scope).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))


def _common_statements(resources: NodeResources) -> list[iam.PolicyStatement]:
    programs = [resources.bundle, *([resources.setup] if resources.setup else [])]
    return [
        iam.PolicyStatement(actions=["s3:GetObject"], resources=programs),
        # Every node runs these objects as root, and a policy of policy_arns may allow all of S3.
        iam.PolicyStatement(effect=iam.Effect.DENY, actions=list(OBJECT_CHANGES), resources=programs),
        iam.PolicyStatement(effect=iam.Effect.DENY, actions=list(BUCKET_CHANGES), resources=[resources.bucket]),
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[resources.log_group]),
        iam.PolicyStatement(actions=["cloudformation:SignalResource"], resources=[cdk.Aws.STACK_ID]),
        _record_statement(["dynamodb:PutItem"], resources.table, keys=[OWN_RECORD]),
        iam.PolicyStatement(actions=["s3:ListBucket"], resources=[resources.bucket]),
        iam.PolicyStatement(
            actions=["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], resources=[f"{resources.bucket}/*"]
        ),
    ]


def _worker_statements(resources: NodeResources) -> list[iam.PolicyStatement]:
    return [
        _record_statement(["dynamodb:GetItem"], resources.table, keys=list(SHARED_RECORDS)),
        # Every node runs the programs stored there as root.
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=list(OBJECT_CHANGES),
            resources=[f"{resources.bucket}/{contract.MXNET_ARCHIVES_PREFIX}*"],
        ),
        # The master runs the jobs stored there; without its delete marker, an ended job would run again.
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=["s3:*"],
            resources=[f"{resources.bucket}/{contract.JOBS_PREFIX}*"],
        ),
        # A policy of policy_arns may allow all of DynamoDB.
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=list(RECORD_WRITES),
            resources=[resources.table],
            conditions={"ForAnyValue:StringNotEquals": {"dynamodb:LeadingKeys": [OWN_RECORD]}},
        ),
    ]


def _master_statements(resources: NodeResources) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(actions=["dynamodb:GetItem", "dynamodb:BatchGetItem"], resources=[resources.table]),
        _record_statement(["dynamodb:PutItem"], resources.table, keys=list(SHARED_RECORDS)),
        iam.PolicyStatement(actions=list(UNSCOPED_ACTIONS), resources=["*"]),
    ]


def _shared_storage_statements(resources: NodeResources) -> list[iam.PolicyStatement]:
    """Allow the master to query which file system the nodes mount; mounting it requires no permission."""
    if resources.creates_file_system:
        return [
            iam.PolicyStatement(actions=["cloudformation:DescribeStackResource"], resources=[cdk.Aws.STACK_ID]),
        ]
    if resources.has_lustre:
        return [iam.PolicyStatement(actions=[DESCRIBE_LUSTRE], resources=["*"])]
    return []


def _record_statement(actions: list[str], table: str, *, keys: list[str]) -> iam.PolicyStatement:
    """Allow actions on the table's records with these keys."""
    return iam.PolicyStatement(
        actions=actions,
        resources=[table],
        conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": keys}},
    )
