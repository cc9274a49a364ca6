"""Publish the user's setup as a file asset: one archive, whose hash each new node's configuration contains.

The same files give the same archive, so a deploy that does not change them changes no launch template.
"""

from dataclasses import dataclass

import aws_cdk as cdk

from stacks.nodes.bundle import zip_files
from stacks.nodes.bundle_asset import publish_file
from stacks.settings.software import SetupSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupAsset:
    """Location of the uploaded archive, and the object that nodes must be allowed to read."""

    url: str
    sha256: str
    arn: str

    @classmethod
    def publish(cls, stack: cdk.Stack, settings: SetupSettings) -> "SetupAsset | None":
        """Write the archive into the cloud assembly; None without ``setup`` and ``requirements``."""
        files = settings.setup_files()
        if not files:
            return None
        published = publish_file(stack, zip_files(files), display_name="setup of the nodes")
        return cls(url=published.url, sha256=published.sha256, arn=published.arn)
