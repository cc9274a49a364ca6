"""Explain in one line why S3 refuses this node, with the setting that would allow it.

All nodes give the same reason, so that the launcher prints it once: S3's own message names the node's session.
"""

import re
from typing import Final

CODES: Final = frozenset({"AccessDenied", "403"})
KEY: Final = re.compile(r"perform: kms:|ciphertext|KMS key")
"""Matches S3's message if the caller may not use the object's key."""
EXPLICIT: Final = "explicit deny"
CALLER: Final = re.compile(r"^User: \S+ is ")


def is_denied(code: str) -> bool:
    """Return True if S3's error code means that the caller lacks a permission."""
    return code in CODES


def explain_denial(path: str, message: str) -> str:
    """Return why this node may not read `path`, BUCKET or BUCKET/PREFIX, and what to change."""
    if KEY.search(message):
        return "this node may not use its key: name the key's ARN in data_keys of cdk.json, then cdk deploy"
    if EXPLICIT in message:
        return f"a policy denies it to this node: {CALLER.sub('', ' '.join(message.split()))}"
    return (
        f"this node may not read it: add {path} to data_buckets in cdk.json, then cdk deploy "
        "(a bucket of another account must allow it too: dlcluster preflight)"
    )
