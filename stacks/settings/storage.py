"""Define the setting that names the bucket for checkpoints."""

import re
from dataclasses import dataclass
from typing import Final

from stacks.settings.values import Settings, require

_BUCKET: Final = re.compile(r"(?!.*\.\.)(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CDK_BUCKET: Final = re.compile(r"cdk-[a-z0-9]+-assets-|cdktoolkit-")
"""Names that ``cdk bootstrap`` gives its staging buckets."""
_OTHER_BUCKETS: Final = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
"""Endings of access points, directory buckets and table buckets, whose ARNs are of other kinds
(Amazon S3 User Guide, "General purpose bucket naming rules")."""


@dataclass(frozen=True, kw_only=True)
class StorageSettings(Settings):
    """The storage that outlives the nodes."""

    bucket: str | None = None
    """Name of an existing S3 bucket to use, such as an earlier cluster's; left out, the stack creates one. Cannot
    be changed after creation."""

    def check(self) -> None:
        """Check the form of the name; ``dlcluster preflight`` asks S3 for the bucket."""
        super().check()
        name = self.bucket
        # Nodes write to the bucket: in the CDK's they could change templates that CloudFormation runs as administrator.
        own = name is None or not _CDK_BUCKET.match(name)
        require(own, "bucket", name, "a bucket of your own, not one of the CDK's")
        usable = name is None or (_BUCKET.fullmatch(name) and not name.endswith(_OTHER_BUCKETS))
        allowed = "the name of a general purpose S3 bucket: 3 to 63 lowercase letters, digits, - and ."
        require(usable, "bucket", name, allowed)
