"""Test that the agent connects to AWS only once it has credentials."""

import os

import pytest
from botocore.exceptions import NoCredentialsError

from bootstrap.aws.clients import connect
from tests.bootstrap.simulated_node import REGION


@pytest.fixture
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("_no_credentials")
def test_connecting_fails_until_credentials_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NoCredentialsError):
        connect(REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    clients = connect(REGION)
    assert clients.dynamodb.meta.region_name == REGION
    assert clients.dynamodb is clients.dynamodb
