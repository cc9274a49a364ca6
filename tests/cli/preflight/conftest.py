"""Provide an account whose answers the test defines."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.cli.preflight.stubbed_account import Account, Quota


@pytest.fixture
def account() -> Iterator[Account]:
    with contextlib.closing(Account()) as made:
        yield made


@pytest.fixture
def quota(account: Account) -> Quota:
    """Set a quota of the account."""

    def give(service: str, code: str, value: float) -> None:
        expected = {"ServiceCode": service, "QuotaCode": code}
        account.answers("service_quotas", "get_service_quota", {"Quota": {"Value": value}}, expected)

    return give
