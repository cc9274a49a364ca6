"""Check for a private cluster that the account's preferences for Session Manager let users log in.

"Turn on KMS key encryption of session data (console)" (AWS Systems Manager User Guide): with a key, the plugin requests
a data key from KMS as the user, and the agent decrypts it with the node's role.
"""

import json
from collections.abc import Iterator
from typing import Final

from cli.preflight.finding import Finding, ok, warning
from cli.preflight.target import PreflightTarget

SUBJECT: Final = "log-in"
PREFERENCES: Final = "SSM-SessionManagerRunShell"
"""Document with the preferences; it does not exist in an account that has saved none."""


def check_session_encryption(target: PreflightTarget) -> Iterator[Finding]:
    """Warn if the account's sessions use a KMS key, which neither the nodes nor ``dlcluster policy`` may use."""
    if not target.props.private:
        return
    key = _session_key(target)
    if not key:
        yield ok(SUBJECT, "Session Manager's preferences name no KMS key")
        return
    roles = f"arn:{target.partition}:iam::{target.account}:role/{target.props.cluster_name}-ClusterRoles*"
    sentence = (
        f"Session Manager's preferences encrypt sessions with KMS key {key}: without rights to it no log-in works"
    )
    yield warning(
        SUBJECT,
        sentence,
        f"allow in the key's policy kms:Decrypt where aws:PrincipalArn is like {roles}, and kms:GenerateDataKey to the "
        "users; a subnet without a default route needs an endpoint of kms too",
    )


def _session_key(target: PreflightTarget) -> str:
    ssm = target.clients.ssm
    try:
        content = ssm.get_document(Name=PREFERENCES)["Content"]
    except ssm.exceptions.InvalidDocument:
        return ""
    return str(json.loads(content).get("inputs", {}).get("kmsKeyId", ""))
