"""Generate the IAM policy of a cluster's users: dlcluster's calls to find the nodes, log in and run jobs.

AWS: "Sample IAM policies for Session Manager" and "Start a session with a document by specifying the session documents
in IAM policies" (AWS Systems Manager User Guide).
"""

from dataclasses import dataclass
from typing import Any, Final

from bootstrap.contract import CLUSTER_TAG, MEMBERSHIP_ID, PAUSE_ID
from cli.aws.clusters import Cluster
from cli.ssh.session_manager import DOCUMENT

Statement = dict[str, Any]
_DOCUMENT_CHECK: Final = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
"""Condition without which a statement would also allow sessions of the default kind, a root shell without a key: AWS
checks the user's right to that document only if each statement on StartSession has the condition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AwsScope:
    """Account and region, for ARNs."""

    partition: str
    region: str
    account: str

    def arn(self, service: str, name: str) -> str:
        """Return the ARN of a resource in this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{name}"


def user_policy(cluster: Cluster, scope: AwsScope) -> dict[str, Any]:
    """Return the policy document for users who log in to a cluster and run jobs on it."""
    statements = [*_look_up(cluster, scope), *(_sessions(cluster, scope) if cluster.is_private else [])]
    return {"Version": "2012-10-17", "Statement": statements}


def _look_up(cluster: Cluster, scope: AwsScope) -> list[Statement]:
    return [
        _allow(
            "FindCluster",
            ["cloudformation:DescribeStacks"],
            scope.arn("cloudformation", f"stack/{cluster.stack_name}/*"),
        ),
        _allow(
            "ReadMembership",
            ["dynamodb:GetItem"],
            scope.arn("dynamodb", f"table/{cluster.table}"),
            {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [MEMBERSHIP_ID, PAUSE_ID]}},
        ),
        *_key(cluster, scope),
        # AWS defines no resource for these actions.
        _allow("SeeNodes", ["autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"], "*"),
    ]


def _key(cluster: Cluster, scope: AwsScope) -> list[Statement]:
    """Allow the actions that DynamoDB performs with the user's own key to read the table."""
    if cluster.kms_key is None:
        return []
    suffix = "amazonaws.com.cn" if scope.partition == "aws-cn" else "amazonaws.com"
    through = {"StringEquals": {"kms:ViaService": f"dynamodb.{scope.region}.{suffix}"}}
    return [_allow("DecryptMembership", ["kms:Decrypt", "kms:DescribeKey"], cluster.kms_key, through)]


def _sessions(cluster: Cluster, scope: AwsScope) -> list[Statement]:
    tagged = {"StringEquals": {f"ssm:resourceTag/{CLUSTER_TAG}": cluster.name}}
    document = f"arn:{scope.partition}:ssm:{scope.region}::document/{DOCUMENT}"
    on_own_sessions = ["ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel"]
    return [
        _allow("ReachNodes", ["ssm:StartSession"], scope.arn("ec2", "instance/*"), {**tagged, **_DOCUMENT_CHECK}),
        _allow("CarrySsh", ["ssm:StartSession"], document, _DOCUMENT_CHECK),
        _allow("OwnSessions", on_own_sessions, scope.arn("ssm", "session/${aws:userid}-*")),
    ]


def _allow(name: str, actions: list[str], resource: str, condition: dict[str, Any] | None = None) -> Statement:
    statement: Statement = {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": resource}
    return statement if condition is None else {**statement, "Condition": condition}
