"""Test which errors the agent retries, and which ones a replacement would mend."""

import errno

import pytest
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from bootstrap import errors
from bootstrap.failures import RETRYABLE_ERRORS, RetryableError, Step, replacement_would_help, short_reason


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        (NoCredentialsError(), "no-credentials"),
        (CredentialRetrievalError(provider="role", error_msg="expired"), "no-credentials"),
        (EndpointConnectionError(endpoint_url="https://dynamodb"), "table-unreachable"),
        (ReadTimeoutError(endpoint_url="https://dynamodb"), "table-unreachable"),
        (ClientError({"Error": {"Code": "AccessDenied"}}, "GetItem"), "GetItem-AccessDenied"),
        (OSError(errno.ENOSPC, "full"), "disk-full"),
        (OSError(errno.EROFS, "read-only"), "table-EROFS"),
        (OSError("odd"), "table-failed"),
        (errors.HostKeyError("not there yet"), "no-host-key"),
        (errors.ConfigError("bad"), "bad-config"),
        (errors.MetadataError("no answer"), "metadata-unreachable"),
    ],
)
def test_every_retryable_error_has_a_short_name(error: RetryableError, slug: str) -> None:
    assert isinstance(error, RETRYABLE_ERRORS)
    assert short_reason(error, step=Step.TABLE) == slug


def test_bug_is_not_retryable() -> None:
    assert not isinstance(TypeError("bug"), RETRYABLE_ERRORS)


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (OSError(errno.EROFS, "read-only"), True),
        (OSError(errno.EIO, "broken"), True),
        (OSError(errno.ENOSPC, "full"), False),
        (errors.HostKeyError("not there"), True),
        (errors.ConfigError("bad"), False),
        (errors.CommandError("systemctl"), True),
        (errors.MetadataError("no answer"), False),
        (errors.GroupsError("no group"), False),
        (errors.TableBusyError("busy"), False),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "GetItem"), False),
        (EndpointConnectionError(endpoint_url="https://dynamodb"), False),
    ],
)
def test_replacement_helps_only_against_the_machines_own_faults(error: RetryableError, own: bool) -> None:
    assert replacement_would_help(error) == own
