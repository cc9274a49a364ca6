"""Check that the key's own policy lets the services that encrypt with ``kms_key`` use it.

AWS: "Required AWS KMS key policy for use with encrypted volumes" (Amazon EC2 Auto Scaling User Guide), "Encrypt log
data in CloudWatch Logs using AWS Key Management Service" (Amazon CloudWatch Logs User Guide), "Default key policy" (AWS
KMS Developer Guide).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cli.preflight.account.permissions import check_key_permissions
from cli.preflight.account.volume_key import auto_scaling_role, denied_to_auto_scaling
from cli.preflight.finding import Finding, ok, problem
from cli.preflight.resource_policy import Caller, allows
from cli.preflight.target import PreflightTarget

SUBJECT: Final = "KMS key"
_LOGS_ACTIONS: Final = ("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey")
"""Actions of AWS's own statement for CloudWatch Logs, and for Auto Scaling's role."""
_ASKED: Final = ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey")
_NODE_SERVICES: Final = ("s3", "dynamodb")


def check_kms_key(target: PreflightTarget) -> Iterator[Finding]:
    """Check the key's state and kind, and what its policy lets the services and the account do."""
    key = target.props.kms_key
    if key is None:
        return
    owner = key.split(":")[4]
    if owner != target.account:
        yield problem(SUBJECT, f"{key} belongs to account {owner}", f"choose a key of account {target.account}")
        return
    kms = target.clients.kms
    try:
        described = kms.describe_key(KeyId=key)["KeyMetadata"]
    except kms.exceptions.NotFoundException:
        yield problem(SUBJECT, f"there is no {key}", "choose another, or aws kms create-key")
        return
    kind = described.get("KeySpec", "SYMMETRIC_DEFAULT")
    if (state := described.get("KeyState", "Enabled")) != "Enabled":
        yield problem(SUBJECT, f"{key} is {state}", f"aws kms enable-key --key-id {key}, or choose another")
    elif kind != "SYMMETRIC_DEFAULT":
        yield problem(SUBJECT, f"{key} is {kind}: disks and logs take only symmetric keys", "choose another")
    else:
        missing = [*_missing_statements(target, key)]
        for who, statement in missing:
            fix = f"add to its policy: {json.dumps(statement)}"
            yield problem(SUBJECT, f"the policy of {key} does not let {who} use it", fix)
        if not missing:
            yield ok(SUBJECT, f"Auto Scaling, CloudWatch Logs and the account's roles may use {key}")
        yield from check_key_permissions(target, key)


def _missing_statements(target: PreflightTarget, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    policy = json.loads(target.clients.kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"])
    role = auto_scaling_role(target)
    denied = denied_to_auto_scaling(target, key, policy)
    if set(denied) - {"kms:CreateGrant"}:
        yield role, _allow({"AWS": role}, [*_LOGS_ACTIONS])
    if "kms:CreateGrant" in denied:
        condition = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
        yield f"{role} grant it to EC2 and", _allow({"AWS": role}, ["kms:CreateGrant"], condition)
    if not _lets_logs(target, policy):
        groups = f"{_logs_arn(target)}:log-group:{target.props.cluster_name}-*"
        condition = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}}
        yield _logs_service(target), _allow({"Service": _logs_service(target)}, [*_LOGS_ACTIONS], condition)
    if not all(_lets_account(target, policy, service) for service in _NODE_SERVICES):
        account = f"arn:{target.partition}:iam::{target.account}:root"
        yield "the account's roles, as their own policies say,", _allow({"AWS": account}, ["kms:*"])


def _allow(principal: Mapping[str, str], actions: list[str], condition: Any = None) -> Mapping[str, Any]:
    statement = {"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": "*"}
    return statement if condition is None else {**statement, "Condition": condition}


def _lets_logs(target: PreflightTarget, policy: Mapping[str, Any]) -> bool:
    group = f"{_logs_arn(target)}:log-group:{target.props.cluster_name}-ClusterLogs"
    keys = {
        "kms:encryptioncontext:aws:logs:arn": group,
        "aws:sourceaccount": target.account,
        "aws:sourcearn": group,
        "kms:calleraccount": target.account,
    }
    caller = Caller(arn=_logs_service(target), keys=keys)
    return all(allows(policy, action, caller) for action in _ASKED)


def _lets_account(target: PreflightTarget, policy: Mapping[str, Any], service: str) -> bool:
    """Return True if the policy lets IAM decide who in the account uses the key through a service."""
    arn = f"arn:{target.partition}:iam::{target.account}:root"
    keys = {
        "aws:principalarn": arn,
        "aws:principalaccount": target.account,
        "kms:calleraccount": target.account,
        "kms:viaservice": f"{service}.{target.region}.{_suffix(target)}",
    }
    return all(allows(policy, action, Caller(arn=arn, keys=keys)) for action in _ASKED[1:])


def _logs_service(target: PreflightTarget) -> str:
    return f"logs.{target.region}.{_suffix(target)}"


def _logs_arn(target: PreflightTarget) -> str:
    return f"arn:{target.partition}:logs:{target.region}:{target.account}"


def _suffix(target: PreflightTarget) -> str:
    return "amazonaws.com.cn" if target.partition == "aws-cn" else "amazonaws.com"
