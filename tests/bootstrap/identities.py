"""Make valid IDs and keys for tests from a number or a word."""

import base64
import hashlib
from ipaddress import IPv4Network

from bootstrap.cluster.membership import Member
from bootstrap.cluster.record_validation import KEY_HEADER

MEMBERS = (
    Member(node_index=10, instance_id="i-c", address="10.0.1.9", node_type="worker", host_key="ssh-ed25519 CCCC"),
    Member(node_index=1, instance_id="i-a", address="10.0.0.100", node_type="master", host_key="ssh-ed25519 AAAA"),
    Member(node_index=2, instance_id="i-b", address="10.0.1.20", node_type="worker", host_key="ssh-ed25519 BBBB"),
)

NETWORKS = (IPv4Network("10.0.0.0/8"), IPv4Network("172.31.0.0/16"))
"""Networks of the nodes; the second is that of moto's own VPC."""


def instance_id(number: int) -> str:
    return f"i-{number:017x}"


def public_key(word: object) -> str:
    """Return an ed25519 public key as ssh-keygen writes it, without a comment."""
    body = hashlib.sha256(str(word).encode()).digest()
    return f"ssh-ed25519 {base64.b64encode(KEY_HEADER + body).decode()}"
