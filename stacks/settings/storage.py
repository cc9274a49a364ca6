"""Define the settings of the storage that outlives the nodes: the bucket, and the directory that all nodes share."""

import re
from dataclasses import dataclass
from typing import Final

from stacks.settings.base import require
from stacks.settings.network import NetworkSettings

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
        if self.makes_file_system:
            warnings["file-system-kept"] = (
                f"shared_storage efs makes a file system that cdk destroy keeps, with the data in it: {EFS_PRICE}; "
                "dlcluster delete-storage deletes it"
            )
        return warnings

    @property
    def makes_file_system(self) -> bool:
        """Return True if the stack creates the shared file system."""
        return self.shared_storage == EFS

    @property
    def makes_mount_target(self) -> bool:
        """Return True if the stack creates a mount target; the user's own VPC already has one."""
        return self.makes_file_system or (self.existing_efs is not None and self.vpc_id is None)

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


def check_bucket_name(setting: str, name: str) -> None:
    """Check the name of a user's bucket. Raises SettingsError."""
    # Nodes write to the bucket. In the CDK's bucket, they could change templates that CloudFormation runs as
    # administrator.
    require(not _CDK_BUCKET.match(name), setting, name, "a bucket of your own, not one of the CDK's")
    usable = _BUCKET.fullmatch(name) and not name.endswith(_OTHER_BUCKETS)
    allowed = "the name of a general purpose S3 bucket: 3 to 63 lowercase letters, digits, - and ."
    require(usable, setting, name, allowed)
