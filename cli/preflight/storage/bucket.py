"""Check that the nodes can use the bucket in the settings, and that it retains what they store."""

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget

SUBJECT = "bucket"


def check_bucket(target: PreflightTarget) -> Iterator[Finding]:
    """Check an adopted bucket; a bucket that the cluster creates needs no check."""
    name = target.props.bucket
    if name is None:
        yield ok(SUBJECT, "the cluster creates its own")
        return
    try:
        head = target.clients.s3.head_bucket(Bucket=name, ExpectedBucketOwner=target.account)
    except ClientError as error:
        # S3 answers HEAD without a body, so the code is the HTTP status.
        code = error.response["Error"]["Code"]
        why = {
            "404": f"there is no bucket {name}",
            "403": f"bucket {name} belongs to another account, or you may not read it",
        }
        if code not in why:
            raise
        yield problem(SUBJECT, why[code], "choose another bucket, or leave the setting out")
        return
    region = head.get("BucketRegion", target.region)
    if region != target.region:
        yield problem(
            SUBJECT, f"{name} is in {region}", f"choose one in {target.region}: traffic to another region costs money"
        )
        return
    findings = [*_shortcomings(target.clients.s3, name, target.props.kms_key or "")]
    yield from findings or [ok(SUBJECT, f"{name} is here and keeps old versions for a while")]


def _shortcomings(s3: Any, name: str, key: str) -> Iterator[Finding]:
    if s3.get_bucket_versioning(Bucket=name).get("Status") != "Enabled":
        fix = f"aws s3api put-bucket-versioning --bucket {name} --versioning-configuration Status=Enabled"
        yield warning(SUBJECT, f"{name} is not versioned: what a job overwrites or deletes is lost", fix)
    elif not any("NoncurrentVersionExpiration" in rule for rule in _rules(s3, name)):
        yield warning(SUBJECT, f"old versions in {name} never expire", "add a lifecycle rule that ends them")
    rules = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    keys = [rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID") for rule in rules]
    # S3 returns a key as it was configured: its ARN or its ID.
    if any(used not in (key, key.rpartition("/")[2]) for used in keys if used):
        sentence = f"{name} is encrypted with a KMS key, which the nodes may not use"
        yield problem(SUBJECT, sentence, "choose another, or name that key as kms_key")


def _rules(s3: Any, name: str) -> list[Any]:
    try:
        return list(s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
            raise
        return []
