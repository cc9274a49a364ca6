"""The node bundle as a file asset of the stack, uploaded by ``cdk deploy``."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk

from stacks import bundle
from stacks.user_data import BundleSource


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleAsset:
    """Where nodes find the bundle, and what they must be allowed to read."""

    source: BundleSource
    arn: str
    """The one object; an S3 asset construct could only grant its whole bucket."""

    @classmethod
    def publish(cls, stack: cdk.Stack) -> "BundleAsset":
        """Write the bundle into the cloud assembly and have the stack upload it.

        Straight through the stack's synthesizer: the construct for S3 assets would copy and hash the
        file a second time, and its module takes longer to load than the bundle to make.
        """
        content = bundle.build()
        digest = hashlib.sha256(content).hexdigest()
        stage = cdk.Stage.of(stack)
        if stage is None:
            raise TypeError("a cluster must be in an app")
        name = f"asset.{digest}.zip"
        Path(stage.asset_outdir, name).write_bytes(content)
        location = stack.synthesizer.add_file_asset(
            source_hash=digest,
            packaging=cdk.FileAssetPackaging.FILE,
            file_name=name,
            display_name="node bundle",
        )
        arn = stack.format_arn(
            service="s3",
            region="",
            account="",
            resource=location.bucket_name,
            resource_name=location.object_key,
        )
        return cls(source=BundleSource(url=location.s3_object_url, hash=digest), arn=arn)
