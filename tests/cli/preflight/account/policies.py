"""Answer for IAM and KMS in tests of preflight: simulated permissions and key policies."""

import json
from typing import Any

from tests.cli.preflight.stubbed_account import ACCOUNT, Account

KEY = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"

ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
OWNER = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*", "Resource": "*"}
USE: dict[str, Any] = {
    "Effect": "Allow", "Principal": {"AWS": [ROLE]}, "Resource": "*",
    "Action": ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
}  # fmt: skip
GRANT = USE | {"Action": "kms:CreateGrant", "Condition": {"Bool": {"kms:GrantIsForAWSResource": True}}}

EXECUTOR = f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-eu-west-1"


def simulates(account: Account, expected: dict[str, Any], *pages: dict[str, str]) -> None:
    for number, decisions in enumerate(pages):
        results = [{"EvalActionName": name, "EvalDecision": decision} for name, decision in decisions.items()]
        last = number + 1 == len(pages)
        more: dict[str, Any] = {"IsTruncated": False} if last else {"IsTruncated": True, "Marker": str(number)}
        account.answers("iam", "simulate_principal_policy", {"EvaluationResults": results, **more}, expected)
        expected = expected if last else {**expected, "Marker": str(number)}


def has_policy(account: Account, *statements: dict[str, Any]) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    account.answers("kms", "get_key_policy", {"Policy": policy}, {"KeyId": KEY, "PolicyName": "default"})
