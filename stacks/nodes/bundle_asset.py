"""Publish files that nodes fetch, above all the node bundle, as assets of the stack, which ``cdk deploy`` uploads."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk

from stacks.nodes import bundle
from stacks.nodes.user_data import BundleSource


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedFile:
    """One uploaded object."""

    url: str
    sha256: str
    arn: str
    """ARN of this single object; an S3 asset construct could only grant its complete bucket."""


def publish_file(stack: cdk.Stack, content: bytes, *, display_name: str) -> PublishedFile:
    """Write a zip file to the cloud assembly and register it with the stack's synthesizer.

    The construct for S3 assets would copy and hash the file a second time, and its module takes longer to load than the
    bundle takes to build.
    """
    digest = hashlib.sha256(content).hexdigest()
    stage = cdk.Stage.of(stack)
    if stage is None:
        raise TypeError("cluster must be in an app, found no stage")
    name = f"asset.{digest}.zip"
    Path(stage.asset_outdir, name).write_bytes(content)
    location = stack.synthesizer.add_file_asset(
        source_hash=digest,
        packaging=cdk.FileAssetPackaging.FILE,
        file_name=name,
        display_name=display_name,
    )
    arn = stack.format_arn(
        service="s3",
        region="",
        account="",
        resource=location.bucket_name,
        resource_name=location.object_key,
    )
    return PublishedFile(url=location.s3_object_url, sha256=digest, arn=arn)


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleAsset:
    """Location of the uploaded bundle, and the object that nodes must be allowed to read."""

    source: BundleSource
    arn: str

    @classmethod
    def publish(cls, stack: cdk.Stack) -> "BundleAsset":
        """Publish the bundle."""
        published = publish_file(stack, bundle.build(), display_name="node bundle")
        return cls(source=BundleSource(url=published.url, sha256=published.sha256), arn=published.arn)
