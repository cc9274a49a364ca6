"""Check that the caller may deploy, and that CloudFormation may create the nodes' roles and the shared storage.

``cdk deploy`` assumes a role that ``cdk bootstrap`` created, and CloudFormation another, so the caller itself needs few
permissions ("Bootstrap your environment for use with the AWS CDK", AWS CDK developer guide).
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bootstrap.contract import TABLE_OUTPUT, WORKER, group_name
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget, find_current_stack

ROLE_ACTIONS: Final = ("iam:CreateRole", "iam:PutRolePolicy")
HARDENED_ROLE_ACTIONS: Final = ("iam:CreateRole", "iam:AttachRolePolicy")
POLICY_ACTIONS: Final = ("iam:CreatePolicy", "iam:CreatePolicyVersion", "iam:DeletePolicy")
"""Actions of CloudFormation for ``AWS::IAM::ManagedPolicy``, which a hardened cluster has."""
FILE_SYSTEM_ACTIONS: Final = (
    "elasticfilesystem:CreateFileSystem",
    "elasticfilesystem:DeleteFileSystem",
    "elasticfilesystem:DescribeFileSystems",
    "elasticfilesystem:PutFileSystemPolicy",
    "elasticfilesystem:TagResource",
)
"""Actions of CloudFormation for ``AWS::EFS::FileSystem``; rolling a creation back deletes it."""
MOUNT_TARGET_ACTIONS: Final = (
    "elasticfilesystem:CreateMountTarget",
    "elasticfilesystem:DeleteMountTarget",
    "elasticfilesystem:DescribeMountTargets",
)
SCHEDULE_ACTIONS: Final = ("scheduler:CreateSchedule", "scheduler:GetSchedule", "scheduler:DeleteSchedule")
"""Actions of CloudFormation for ``AWS::Scheduler::Schedule``; only schedule groups have tags."""
UP_ACTIONS: Final = (
    "autoscaling:CreateOrUpdateTags",
    "autoscaling:DeleteTags",
    "autoscaling:LaunchInstances",
    "autoscaling:UpdateAutoScalingGroup",
)
"""Calls of ``dlcluster up`` that change the groups."""
UP_RECORD_ACTIONS: Final = ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem")
"""Calls of ``dlcluster up`` to the cluster's table, which holds its lock and the members."""
KEY_ACTIONS: Final = ("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey")
"""Actions of DynamoDB and EFS with the user's key, on behalf of CloudFormation, which creates table and file system."""
SCHEDULER: Final = "scheduler.amazonaws.com"
NO_CONDITION_KEYS: Final[Mapping[str, str]] = MappingProxyType({})


def check_deploy_permission(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the caller can assume the role that deploys."""
    if not target.is_bootstrapped:
        return
    caller = _caller(target)
    if caller is None:
        yield warning("permissions", f"could not check: IAM cannot simulate {target.caller}")
        return
    role = _bootstrap_role(target, "deploy-role")
    if denied_to(target, caller, ["sts:AssumeRole"], role):
        # If the caller's own credentials are for the same account, the CDK's command line continues with them.
        sentence = f"{caller} may not assume {role}"
        yield warning("permissions", sentence, "allow it sts:AssumeRole there, or everything that the stack creates")
    else:
        yield ok("permissions", f"{caller} may deploy")


def check_launch_permissions(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the caller may launch the nodes of a cluster with candidate zones, because no deploy launches them."""
    caller = _caller(target) if target.props.zones else None
    if caller is None:
        return
    name = group_name(target.props.cluster_name, WORKER)
    place = f"{target.region}:{target.account}"
    groups = f"arn:{target.partition}:autoscaling:{place}:autoScalingGroup:*:autoScalingGroupName/{name}"
    advice = "docs/use/permissions.md lists what up needs"
    deployed = _deployed_table(target)
    table = f"arn:{target.partition}:dynamodb:{place}:table/{deployed or f'{target.props.cluster_name}-Cluster'}"
    denied = denied_to(target, caller, UP_ACTIONS, groups)
    denied_table = denied_to(target, caller, UP_RECORD_ACTIONS, table)
    if denied or (deployed and denied_table):
        sentence = f"{caller} may not {' and '.join([*denied, *denied_table])}, as dlcluster up does"
        yield problem("permissions", sentence, advice)
    elif denied_table:
        # The table's real name has a suffix that only the deploy chooses; a policy may already allow for it.
        yield warning("permissions", f"{caller} may not {' and '.join(denied_table)} on {table}", advice)
    else:
        yield ok("permissions", f"{caller} may change the groups and the table as dlcluster up does")


def _deployed_table(target: PreflightTarget) -> str:
    """Return the name of the cluster's table; empty before the first deploy."""
    stack = find_current_stack(target)
    outputs = stack.get("Outputs", []) if stack else []
    return next((output.get("OutputValue", "") for output in outputs if output.get("OutputKey") == TABLE_OUTPUT), "")


def check_role_permissions(target: PreflightTarget) -> Iterator[Finding]:
    """Check that CloudFormation's role can create the roles of the nodes."""
    props = target.props
    name = f"{props.role_name_prefix or ''}{props.cluster_name}-ClusterRoles"
    example = f"arn:{target.partition}:iam::{target.account}:role/{name}"
    actions = HARDENED_ROLE_ACTIONS if props.hardened else ROLE_ACTIONS
    # Where roles must have a boundary, only this condition allows their creation.
    limit = _boundary_arn(target)
    condition_keys = {"iam:PermissionsBoundary": limit} if limit is not None else {}
    yield from _for_cloudformation(
        target, actions, example, "create the roles of the nodes", condition_keys=condition_keys
    )
    if props.hardened:
        policy = f"arn:{target.partition}:iam::{target.account}:policy/{props.cluster_name}-ClusterRoles"
        yield from _for_cloudformation(target, POLICY_ACTIONS, policy, "create their policies")


def check_storage_permissions(target: PreflightTarget) -> Iterator[Finding]:
    """Check that CloudFormation's role can create the file system and the mount target that the settings request."""
    props = target.props
    if not props.creates_mount_target:
        return
    actions = MOUNT_TARGET_ACTIONS if props.existing_efs else (*FILE_SYSTEM_ACTIONS, *MOUNT_TARGET_ACTIONS)
    name = props.existing_efs or "fs-0123456789abcdef0"
    resource = f"arn:{target.partition}:elasticfilesystem:{target.region}:{target.account}:file-system/{name}"
    yield from _for_cloudformation(target, actions, resource, "make the shared storage")


def check_schedule_permissions(target: PreflightTarget) -> Iterator[Finding]:
    """Check that CloudFormation's role can create and delete the schedules of ``expires``, and pass them their role."""
    if target.props.expires_at is None and not target.props.uses_capacity_block:
        return
    name = f"{target.props.cluster_name}-ClusterExpiry"
    schedule = f"arn:{target.partition}:scheduler:{target.region}:{target.account}:schedule/default/{name}"
    yield from _for_cloudformation(target, SCHEDULE_ACTIONS, schedule, "schedule the cluster's end")
    role = f"arn:{target.partition}:iam::{target.account}:role/{name}Role"
    passed = {"iam:PassedToService": SCHEDULER}
    yield from _for_cloudformation(
        target, ["iam:PassRole"], role, "give the schedules their role", condition_keys=passed
    )


def check_key_permissions(target: PreflightTarget, key: str) -> Iterator[Finding]:
    """Check that CloudFormation's role can use the user's key to encrypt what it creates."""
    yield from _for_cloudformation(target, KEY_ACTIONS, key, "encrypt with the key")


def check_boundary(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the policy that limits the stack's roles exists."""
    arn, iam = _boundary_arn(target), target.clients.iam
    if arn is None:
        return
    try:
        iam.get_policy(PolicyArn=arn)
    except iam.exceptions.NoSuchEntityException:
        yield problem("permissions", f"there is no policy {arn}", "choose another permissions_boundary")
    else:
        yield ok("permissions", f"{arn} limits the stack's roles")


def _boundary_arn(target: PreflightTarget) -> str | None:
    name = target.props.permissions_boundary
    if name is None or name.startswith("arn:"):
        return name
    return f"arn:{target.partition}:iam::{target.account}:policy/{name}"


def _for_cloudformation(
    target: PreflightTarget,
    actions: Sequence[str],
    resource: str,
    purpose: str,
    *,
    condition_keys: Mapping[str, str] = NO_CONDITION_KEYS,
) -> Iterator[Finding]:
    if not target.is_bootstrapped:
        return
    executor = execution_role(target)
    denied = denied_to(target, executor, actions, resource, condition_keys=condition_keys)
    if denied:
        sentence = f"CloudFormation, as {executor}, may not {' and '.join(denied)}"
        policy = f"arn:{target.partition}:iam::aws:policy/AdministratorAccess"
        yield problem(
            "permissions",
            sentence,
            f"cdk bootstrap aws://{target.account}/{target.region} --cloudformation-execution-policies {policy}, "
            "or a narrower policy that allows it",
        )
    else:
        yield ok("permissions", f"CloudFormation may {purpose}")


def execution_role(target: PreflightTarget) -> str:
    """Return the ARN of the role with which CloudFormation creates the stack's resources."""
    return _bootstrap_role(target, "cfn-exec-role")


def _bootstrap_role(target: PreflightTarget, name: str) -> str:
    account = target.account
    return f"arn:{target.partition}:iam::{account}:role/cdk-{target.qualifier}-{name}-{account}-{target.region}"


def _caller(target: PreflightTarget) -> str | None:
    """Return the user or role behind the credentials; None for the root user and federated users."""
    principal_type, _, name = target.caller.split(":", 5)[5].partition("/")
    if principal_type == "user":
        return target.caller
    if principal_type == "assumed-role":
        # The session's ARN lacks the path of its role.
        return str(target.clients.iam.get_role(RoleName=name.split("/")[0])["Role"]["Arn"])
    return None


def denied_to(
    target: PreflightTarget,
    principal: str,
    actions: Sequence[str],
    resource: str,
    *,
    condition_keys: Mapping[str, str] = NO_CONDITION_KEYS,
) -> list[str]:
    """Return the actions on the resource that the user or role may not perform with these condition keys."""
    entries = [
        {"ContextKeyName": name, "ContextKeyType": "string", "ContextKeyValues": [value]}
        for name, value in condition_keys.items()
    ]
    pages = target.clients.iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=principal,
        ActionNames=list(actions),
        ResourceArns=[resource],
        **({"ContextEntries": entries} if entries else {}),
    )
    results = (result for page in pages for result in page["EvaluationResults"])
    return [result["EvalActionName"] for result in results if result["EvalDecision"] != "allowed"]
