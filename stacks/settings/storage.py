"""Define the settings of the storage that outlives the nodes, and of the user's own data and policies for the nodes."""

import re
from dataclasses import dataclass, field
from typing import Final

from stacks.settings.base import SettingsError, require
from stacks.settings.network import NetworkSettings
from stacks.settings.parsing import PARSER, parse_list

_BUCKET: Final = re.compile(r"(?!.*\.\.)(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CDK_BUCKET: Final = re.compile(r"cdk-[a-z0-9]+-assets-|cdktoolkit-")
"""Names that ``cdk bootstrap`` gives its staging buckets."""
_OTHER_BUCKETS: Final = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
"""Endings of access points, directory buckets and table buckets, whose ARNs are of other kinds
(Amazon S3 User Guide, "General purpose bucket naming rules")."""
NO_SHARED_STORAGE: Final = "none"
EFS: Final = "efs"
LUSTRE_PORTS: Final = ((988, 988), (1018, 1023))
"""Ranges of TCP ports on which Lustre's servers and clients connect to each other ("File system access control with
Amazon VPC", FSx for Lustre User Guide)."""
_SHARED_STORAGE: Final = re.compile(r"none|efs|(?:efs|lustre):fs-(?:[0-9a-f]{8}|[0-9a-f]{17})")
EFS_PRICE: Final = "$0.30 per GB and month, $0.03 per GB read and $0.06 per GB written in us-east-1"
"""Price of a file system that the stack creates: Standard storage, Elastic throughput (docs/start/costs.md)."""
READS: Final = ("s3:GetObject",)
"""Actions that nodes may perform on the objects of a bucket."""
WRITES: Final = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
"""Further actions with ``:rw``."""
_WRITABLE: Final = ":rw"
_DATA_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.'()-][A-Za-z0-9!_.'()/=+@&,-]{0,500}")
"""Matches a prefix without IAM's wildcards and variables."""
KEY_ARN: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]{1,64}")
KEY_ARN_FORM: Final = "ARNs of KMS keys like arn:aws:kms:REGION:ACCOUNT:key/ID"
_POLICY: Final = re.compile(r"arn:aws[a-z-]*:iam::(?:aws|[0-9]{12}):policy/[A-Za-z0-9+=,.@_/-]{1,512}")
_MAX_POLICIES: Final = 10
"""Number of managed policies that a role accepts by default (IAM User Guide, "IAM object quotas")."""
_MAX_BUCKETS: Final = 20
"""Number of buckets for which a role's inline policies have room: 10,240 characters ("IAM object quotas")."""
_ADMINISTRATORS: Final = ("AdministratorAccess", "IAMFullAccess", "PowerUserAccess")
_FULL_ACCESS: Final = "FullAccess"
"""Part of the names of AWS's policies that allow everything in one service."""


@dataclass(frozen=True, kw_only=True)
class StorageSettings(NetworkSettings):
    """The storage that outlives the nodes."""

    bucket: str | None = None
    """Name of an existing S3 bucket to use, such as an earlier cluster's. Default: the stack creates one. Cannot
    be changed after creation."""
    shared_storage: str = NO_SHARED_STORAGE
    """File system that every node mounts on ``/shared``: ``efs`` creates one, which ``cdk destroy`` keeps;
    ``efs:fs-...`` or ``lustre:fs-...`` uses an existing one. Cannot be changed after creation."""

    def check(self) -> None:
        """Check the form of the name; ``dlcluster preflight`` asks S3 for the bucket."""
        super().check()
        if self.bucket is not None:
            check_bucket_name("bucket", self.bucket)
        self._check_shared_storage()

    def _check_shared_storage(self) -> None:
        value = self.shared_storage
        require(
            _SHARED_STORAGE.fullmatch(value),
            "shared_storage",
            value,
            f"{NO_SHARED_STORAGE}, {EFS}, efs:fs-ID or lustre:fs-ID",
        )
        if value.startswith("lustre:"):
            allowed = "set for Lustre, whose network interfaces are in a VPC that exists"
            require(self.vpc_id is not None, "vpc_id", self.vpc_id, allowed)

    def warnings(self) -> dict[str, str]:
        """Warn of what costs money after ``cdk destroy``."""
        warnings = super().warnings()
        if self.creates_file_system:
            warnings["file-system-kept"] = (
                f"shared_storage efs makes a file system that cdk destroy keeps, with the data in it: {EFS_PRICE}; "
                "dlcluster delete-storage deletes it"
            )
        return warnings

    @property
    def creates_file_system(self) -> bool:
        """Return True if the stack creates the shared file system."""
        return self.shared_storage == EFS

    @property
    def creates_mount_target(self) -> bool:
        """Return True if the stack creates a mount target; the user's own VPC already has one."""
        return self.creates_file_system or (self.existing_efs is not None and self.vpc_id is None)

    @property
    def existing_lustre(self) -> str | None:
        """Return the ID of the Lustre file system that the user names, if any."""
        kind, _, file_system = self.shared_storage.partition(":")
        return file_system if kind == "lustre" else None

    @property
    def existing_efs(self) -> str | None:
        """Return the ID of the EFS file system that the user names, if any."""
        kind, _, file_system = self.shared_storage.partition(":")
        return file_system if kind == EFS and file_system else None


@dataclass(frozen=True, kw_only=True, slots=True)
class DataBucket:
    """A bucket, or its part below a prefix, that nodes may read."""

    name: str
    prefix: str = ""
    """Prefix without a trailing slash; empty for the complete bucket."""
    is_writable: bool = False

    @classmethod
    def parse(cls, text: str) -> "DataBucket":
        """Parse ``name``, ``name/prefix`` or either with ``:rw``."""
        path = text.removesuffix(_WRITABLE)
        name, _, prefix = path.removeprefix("s3://").partition("/")
        return cls(name=name, prefix=prefix.rstrip("/"), is_writable=path != text)

    @property
    def objects(self) -> str:
        """Return the part of the objects' ARN after ``s3:::``."""
        return f"{self.name}/{self.prefix}/*" if self.prefix else f"{self.name}/*"

    def __str__(self) -> str:
        return f"{self.name}/{self.prefix}" if self.prefix else self.name


@dataclass(frozen=True, kw_only=True)
class DataSettings(StorageSettings):
    """The user's own data, which nodes reach with their roles."""

    data_buckets: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """S3 buckets that nodes may read: ``name`` or ``name/prefix``, and with ``:rw`` at the end also write."""
    data_keys: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """ARNs of KMS keys that nodes may use through S3: those of ``data_buckets``, and former ones of ``kms_key``."""
    policy_arns: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """ARNs of managed policies to attach to the nodes' roles, for what else jobs need of AWS."""

    def check(self) -> None:
        """Check the form of buckets, keys and policies; ``dlcluster preflight`` asks AWS whether they exist."""
        super().check()
        if (count := len(self.data_buckets)) > _MAX_BUCKETS:
            raise SettingsError(f"data_buckets must name at most {_MAX_BUCKETS} buckets, got {count}")
        for text, bucket in zip(self.data_buckets, self.buckets, strict=True):
            check_bucket_name("data_buckets", bucket.name)
            allowed = "name or name/prefix, with :rw to write, and without * or ?"
            require(not bucket.prefix or _DATA_PREFIX.fullmatch(bucket.prefix), "data_buckets", text, allowed)
        for key in self.data_keys:
            require(KEY_ARN.fullmatch(key), "data_keys", key, KEY_ARN_FORM)
        for arn in self.policy_arns:
            require(
                _POLICY.fullmatch(arn), "policy_arns", arn, "ARNs of managed policies like arn:aws:iam::aws:policy/X"
            )
        maximum = _MAX_POLICIES
        require(len(self.policy_arns) <= maximum, "policy_arns", len(self.policy_arns), f"at most {maximum} policies")

    def warnings(self) -> dict[str, str]:
        """Warn of policies that make every job an administrator, or let it do everything in a service."""
        warnings = super().warnings()
        names = [arn.rpartition("/")[2] for arn in self.policy_arns]
        if wide := ", ".join(name for name in names if name in _ADMINISTRATORS):
            warnings["wide-policy"] = f"policy_arns {wide} makes every job on the nodes an administrator of the account"
        full = [name for name in names if _FULL_ACCESS in name and name not in _ADMINISTRATORS]
        if full:
            message = "lets every job on the nodes read, change and delete everything in that service"
            warnings["full-access-policy"] = f"policy_arns {', '.join(full)} {message}"
        return warnings

    @property
    def buckets(self) -> tuple[DataBucket, ...]:
        """Return the buckets, parsed."""
        return tuple(map(DataBucket.parse, self.data_buckets))


def check_bucket_name(setting: str, name: str) -> None:
    """Check the name of a user's bucket. Raises SettingsError."""
    # Nodes write to the bucket. In the CDK's bucket, they could change templates that CloudFormation runs as
    # administrator.
    require(not _CDK_BUCKET.match(name), setting, name, "a bucket of your own, not one of the CDK's")
    usable = _BUCKET.fullmatch(name) and not name.endswith(_OTHER_BUCKETS)
    allowed = "the name of a general purpose S3 bucket: 3 to 63 lowercase letters, digits, - and ."
    require(usable, setting, name, allowed)
