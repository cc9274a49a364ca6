"""Check that Auto Scaling may use the account's default key for EBS volumes, which encrypts the nodes' disks.

Otherwise, instances end at their launch with ``Client.InternalError``, and the groups keep launching others ("Required
AWS KMS key policy for use with encrypted volumes", Amazon EC2 Auto Scaling User Guide).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cli.preflight.account.service_role import AUTO_SCALING
from cli.preflight.finding import Finding, ok, problem
from cli.preflight.resource_policy import Caller, allows
from cli.preflight.target import PreflightTarget

SUBJECT: Final = "EBS key"
AWS_KEY: Final = "alias/aws/ebs"
"""AWS's own key, which every caller of the account may use for volumes."""
ACTIONS: Final = ("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
"""Actions that EC2 performs with the key on behalf of the caller who launches an instance."""


def check_volume_key(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the key is enabled, and that its policy or a grant lets Auto Scaling's role use it.

    With ``kms_key``, the disks use that key instead (cli/preflight/account/kms_key.py).
    """
    if target.props.kms_key is not None:
        return
    key = target.clients.ec2.get_ebs_default_kms_key_id()["KmsKeyId"]
    if key.endswith(AWS_KEY):
        yield ok(SUBJECT, f"the nodes' disks are encrypted with {AWS_KEY}")
        return
    described = target.clients.kms.describe_key(KeyId=key)["KeyMetadata"]
    role, arn = AUTO_SCALING[0], auto_scaling_role(target)
    if (state := described.get("KeyState", "Enabled")) != "Enabled":
        sentence = f"{key}, the account's default key for volumes, is {state}: no instance can start"
        yield problem(SUBJECT, sentence, f"aws ec2 reset-ebs-default-kms-key-id --region {target.region}")
    elif described.get("KeyManager") == "AWS" or not (
        denied := denied_to_auto_scaling(target, described["Arn"], _policy(target, described["Arn"]))
    ):
        yield ok(SUBJECT, f"Auto Scaling may encrypt the nodes' disks with {key}")
    else:
        sentence = f"{key}, the account's default key for volumes, does not let {role} {' and '.join(denied)}"
        fix = f"allow {arn} in its policy, kms:CreateGrant only where kms:GrantIsForAWSResource is true"
        yield problem(SUBJECT, f"{sentence}: every instance would end at its launch", fix)


def auto_scaling_role(target: PreflightTarget) -> str:
    """Return the ARN of the role with which Auto Scaling starts instances."""
    role, service = AUTO_SCALING
    return f"arn:{target.partition}:iam::{target.account}:role/aws-service-role/{service}/{role}"


def _policy(target: PreflightTarget, key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(target.clients.kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"])
    return found


def denied_to_auto_scaling(target: PreflightTarget, key: str, policy: Mapping[str, Any]) -> list[str]:
    """Return what neither the policy nor a grant allows; AWS's own policy of the role does not mention KMS."""
    kms, role = target.clients.kms, auto_scaling_role(target)
    caller = Caller(
        arn=role,
        keys={
            "aws:principalarn": role,
            "aws:principalaccount": target.account,
            "kms:calleraccount": target.account,
            "kms:grantisforawsresource": "true",
            "kms:viaservice": f"ec2.{target.region}.amazonaws.com",
        },
    )
    denied = [action for action in ACTIONS if not allows(policy, action, caller)]
    if not denied:
        return []
    grants = kms.list_grants(KeyId=key, GranteePrincipal=role)["Grants"]
    granted = {f"kms:{operation}" for grant in grants for operation in grant["Operations"]}
    return [action for action in denied if action not in granted]
