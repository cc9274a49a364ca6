"""Define the settings that a security review requests: the user's own key, flow logs, and rules for IAM roles."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stacks.settings.access import AccessSettings
from stacks.settings.base import require
from stacks.settings.capacity import CapacitySettings
from stacks.settings.data import DataSettings
from stacks.settings.naming import NamingSettings

_KEY: Final = re.compile(
    r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)
_KEY_FORM: Final = "the ARN of a KMS key like arn:aws:kms:REGION:ACCOUNT:key/ID"
_NAME: Final = r"[A-Za-z0-9+=,.@_-]"
_BOUNDARY: Final = re.compile(rf"{_NAME}{{1,128}}|arn:aws[a-z-]*:iam::(?:aws|[0-9]{{12}}):policy/[A-Za-z0-9+=,.@_/-]+")
_PREFIX: Final = re.compile(rf"[A-Za-z]{_NAME}{{0,37}}")
_ROLE_NAME: Final = 64
"""Longest role name in characters ("IAM and AWS STS quotas", IAM User Guide)."""
_ROLE_NAME_END: Final = len("-ap-southeast-1-flow-logs")
"""Number of characters after the cluster's name in the longest role name."""
_HARDENED_POLICIES: Final = 4
"""Number of the user's policies for which a role has room beside the five with its own permissions, and a sixth while
``kms_key`` changes."""
_HARDENED_BUCKETS: Final = 10
"""Number of buckets for which a managed policy has room, unless their names are long (stacks/cluster_role.py)."""


@dataclass(frozen=True, kw_only=True)
class SecuritySettings(DataSettings, AccessSettings, CapacitySettings, NamingSettings):
    """Protection of the cluster beyond what every cluster has."""

    hardened: bool = False
    """With true the cluster passes the checks of NIST 800-53, PCI DSS and HIPAA: it sets ``private`` and, in a VPC
    that the stack creates, ``flow_logs``, and needs ``kms_key``."""
    kms_key: str | None = None
    """ARN of your own KMS key for disks, table, bucket, logs and a file system that the stack creates. Default:
    AWS's keys. A file system's key cannot be changed after creation."""
    flow_logs: bool = False
    """With true the addresses and ports of all connections in the VPC that the stack creates are logged for 14 days."""
    permissions_boundary: str | None = None
    """Name or ARN of the managed policy that limits every role of the stack."""
    role_name_prefix: str | None = None
    """Start of the names of the stack's roles. Default: CloudFormation names them. Cannot be changed after
    creation."""

    def check(self) -> None:
        """Check the form of each, and that nothing contradicts ``hardened``."""
        super().check()
        require(self.kms_key is None or _KEY.fullmatch(self.kms_key), "kms_key", self.kms_key, _KEY_FORM)
        allowed = "left out with vpc_id: the VPC is not the stack's, add a flow log to it yourself"
        require(not self.flow_logs or self.vpc_id is None, "flow_logs", self.flow_logs, allowed)
        boundary, prefix = self.permissions_boundary, self.role_name_prefix
        allowed = "the name or the ARN of a managed policy"
        require(boundary is None or _BOUNDARY.fullmatch(boundary), "permissions_boundary", boundary, allowed)
        if prefix is not None:
            maximum = _ROLE_NAME - _ROLE_NAME_END - len(self.cluster_name)
            usable = _PREFIX.fullmatch(prefix) and len(prefix) <= maximum
            allowed = f"a letter, then letters, digits and + = , . @ _ -, at most {max(maximum, 0)} beside cluster_name"
            require(usable, "role_name_prefix", prefix, allowed)
        if self.hardened:
            self._check_hardened()

    def _check_hardened(self) -> None:
        require(self.private, "private", self.private, "true with hardened")
        require(self.kms_key is not None, "kms_key", self.kms_key, f"set with hardened, {_KEY_FORM}")
        require(self.flow_logs or self.vpc_id is not None, "flow_logs", self.flow_logs, "true with hardened")
        # A file system that the stack creates would be in no backup plan, which the checks require.
        allowed = "none or a file system of your own with hardened, in your backup plan"
        require(not self.makes_file_system, "shared_storage", self.shared_storage, allowed)
        for name, values, maximum in (
            ("policy_arns", self.policy_arns, _HARDENED_POLICIES),
            ("data_buckets", self.data_buckets, _HARDENED_BUCKETS),
        ):
            require(len(values) <= maximum, name, len(values), f"at most {maximum} with hardened")

    def check_region(self, region: str) -> None:
        """Refuse a key of another region once the deploy's region is known."""
        super().check_region(region)
        key = self.kms_key
        require(key is None or key.split(":")[3] == region, "kms_key", key, f"a key of {region}")


def hardened_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that ``hardened`` sets unless the context gives them."""
    return {"private": True} | ({} if settings.get("vpc_id") else {"flow_logs": True})
