"""Policies of file systems, as their owners write them."""

from typing import Any, Final

VERSION: Final = "2012-10-17"
CLIENT: Final = [f"elasticfilesystem:Client{action}" for action in ("Mount", "Write", "RootAccess")]
BY_MOUNT_TARGET: Final = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
ARN: Final = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/fs-0123"
ROLE: Final = "arn:aws:iam::123456789012:role/Trainer"
NO_PLAINTEXT: Final = {
    "Effect": "Deny",
    "Principal": {"AWS": "*"},
    "Action": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}


def allow(principal: Any = "*", actions: Any = CLIENT, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": actions, **more}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": VERSION, "Statement": [*statements]}


EVERYBODY: Final = policy(allow(Condition=BY_MOUNT_TARGET))
TLS_ONLY: Final = policy(allow(Condition=BY_MOUNT_TARGET), NO_PLAINTEXT)
"""Policy of the file system that a cluster makes."""
OF_ONE_ROLE: Final = policy(allow(ROLE), NO_PLAINTEXT)
