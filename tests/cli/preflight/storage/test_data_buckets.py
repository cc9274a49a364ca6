"""Test the check of the buckets of data."""

import json

import pytest

from cli.preflight.storage import data_buckets
from tests.cli.moto_cluster import REGION
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

OWN = {"Bucket": "images", "ExpectedBucketOwner": ACCOUNT}
ANY = {"Bucket": "images"}


@pytest.fixture
def account_with_data_bucket(account: Account) -> Account:
    account.settings["data_buckets"] = ("images/2026:rw",)
    return account


def test_cluster_without_data_buckets_makes_no_call(account: Account) -> None:
    assert account.check(data_buckets.check_data_buckets) == []


def test_bucket_of_this_account_is_fine(account_with_data_bucket: Account) -> None:
    account_with_data_bucket.answers("s3", "head_bucket", {"BucketRegion": REGION}, OWN)
    found = account_with_data_bucket.finds(data_buckets.check_data_buckets)
    assert (found.level, found.sentence) == ("ok", "images/2026 is in this account")


def test_traffic_from_another_region_is_warned_of(account_with_data_bucket: Account) -> None:
    account_with_data_bucket.answers("s3", "head_bucket", {"BucketRegion": "us-west-2"}, OWN)
    found = account_with_data_bucket.finds(data_buckets.check_data_buckets)
    assert (found.level, found.sentence) == ("warning", "images/2026 is in us-west-2, from where traffic costs money")


def test_missing_data_bucket_is_a_problem(account_with_data_bucket: Account) -> None:
    account_with_data_bucket.refuses("s3", "head_bucket", "404", OWN)
    found = account_with_data_bucket.finds(data_buckets.check_data_buckets)
    assert (found.level, found.sentence) == ("problem", "there is no bucket images")


@pytest.mark.parametrize("visible", [True, False])
def test_owner_of_another_accounts_bucket_gets_the_permissions(
    account_with_data_bucket: Account, visible: bool
) -> None:
    account_with_data_bucket.refuses("s3", "head_bucket", "403", OWN)
    if visible:
        account_with_data_bucket.answers("s3", "head_bucket", {}, ANY)
    else:
        account_with_data_bucket.refuses("s3", "head_bucket", "403", ANY)
    found = account_with_data_bucket.finds(data_buckets.check_data_buckets)
    assert (found.level, found.sentence.endswith("you may not list it")) == ("warning", not visible)
    listing, objects = json.loads(found.fix.partition(": ")[2])
    assert {statement["Principal"]["AWS"] for statement in (listing, objects)} == {f"arn:aws:iam::{ACCOUNT}:root"}
    assert (listing["Resource"], objects["Resource"]) == ("arn:aws:s3:::images", "arn:aws:s3:::images/2026/*")
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["2026", "2026/*"]}}
    assert "s3:PutObject" in objects["Action"]
