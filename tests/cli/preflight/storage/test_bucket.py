"""Test the check of an existing bucket of the cluster."""

from typing import Any

import pytest

from cli.preflight.storage import bucket
from tests.cli.moto_cluster import REGION
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

NAME = {"Bucket": "kept"}
EXPIRE: dict[str, Any] = {"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 14}}
PLAIN: dict[str, Any] = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
OWN_KEY: dict[str, Any] = {
    "ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "alias/mine"}
}


KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.mark.parametrize("shown", [KEY, KEY.rpartition("/")[2]])
def test_clusters_own_key_may_encrypt_it(account_with_existing_bucket: Account, shown: str) -> None:
    account_with_existing_bucket.settings["kms_key"] = KEY
    give(
        account_with_existing_bucket,
        key={"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": shown}},
    )
    assert account_with_existing_bucket.finds(bucket.check_bucket).level == "ok"


@pytest.fixture
def account_with_existing_bucket(account: Account) -> Account:
    account.settings["bucket"] = "kept"
    return account


def give(
    account: Account, *, versioned: bool = True, rules: tuple[dict[str, Any], ...] = (EXPIRE,), key: Any = PLAIN
) -> None:
    account.answers("s3", "head_bucket", {"BucketRegion": REGION}, NAME | {"ExpectedBucketOwner": ACCOUNT})
    account.answers("s3", "get_bucket_versioning", {"Status": "Enabled"} if versioned else {}, NAME)
    if versioned and rules:
        account.answers("s3", "get_bucket_lifecycle_configuration", {"Rules": [*rules]}, NAME)
    elif versioned:
        account.refuses("s3", "get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration", NAME)
    encryption = {"ServerSideEncryptionConfiguration": {"Rules": [key]}}
    account.answers("s3", "get_bucket_encryption", encryption, NAME)


def test_check_passes_without_an_existing_bucket(account: Account) -> None:
    assert account.finds(bucket.check_bucket).level == "ok"


def test_check_passes_for_a_bucket_kept_by_an_earlier_cluster(account_with_existing_bucket: Account) -> None:
    give(account_with_existing_bucket)
    assert account_with_existing_bucket.finds(bucket.check_bucket).level == "ok"


@pytest.mark.parametrize(
    ("code", "message"),
    [("404", "there is no bucket kept"), ("403", "bucket kept belongs to another account, or you may not read it")],
)
def test_missing_or_foreign_bucket_is_a_problem(account_with_existing_bucket: Account, code: str, message: str) -> None:
    account_with_existing_bucket.refuses("s3", "head_bucket", code)
    found = account_with_existing_bucket.finds(bucket.check_bucket)
    assert (found.level, found.sentence.startswith(message)) == ("problem", True)


def test_bucket_in_another_region_is_a_problem(account_with_existing_bucket: Account) -> None:
    account_with_existing_bucket.answers("s3", "head_bucket", {"BucketRegion": "us-west-2"})
    found = account_with_existing_bucket.finds(bucket.check_bucket)
    assert (found.level, found.sentence) == ("problem", "kept is in us-west-2")


@pytest.mark.parametrize(
    ("given", "level", "message"),
    [
        ({"versioned": False}, "warning", "kept is not versioned"),
        ({"rules": ()}, "warning", "old versions in kept never expire"),
        ({"rules": ({"Status": "Enabled"},)}, "warning", "old versions in kept never expire"),
        ({"key": OWN_KEY}, "problem", "kept is encrypted with a KMS key"),
    ],
)
def test_findings_about_an_existing_bucket(
    account_with_existing_bucket: Account, given: dict[str, Any], level: str, message: str
) -> None:
    give(account_with_existing_bucket, **given)
    found = account_with_existing_bucket.finds(bucket.check_bucket)
    assert (found.level, found.sentence.startswith(message)) == (level, True)
