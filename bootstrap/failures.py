"""List the errors after which the agent retries, and name each for a failure signal."""

import errno
import logging
from enum import Enum
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from bootstrap.cluster.record_validation import RecordError
from bootstrap.errors import BootstrapError, CommandError, HostKeyError, MxnetEnvironmentError

log = logging.getLogger(__name__)

RetryableError = BootstrapError | RecordError | BotoCoreError | ClientError | OSError
RETRYABLE_ERRORS: Final = (BootstrapError, RecordError, BotoCoreError, ClientError, OSError)
"""Errors that a pass may raise because AWS, the metadata service or the disk has a temporary problem.

Anything else is a bug: the agent ends with a traceback in the journal, and systemd restarts it.
"""
BROKEN_DISK: Final = frozenset({errno.EIO, errno.EROFS})
"""Errors of a failing disk; a full disk is not broken."""
NO_CREDENTIALS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


class Step(Enum):
    """The agent's current activity, part of the short name of a failure."""

    METADATA = "metadata"
    CREDENTIALS = "credentials"
    HOST_KEY = "host-key"
    TABLE = "table"
    GROUPS = "groups"
    FILES = "files"
    ADDRESS = "address"
    MXNET_ENVIRONMENT = "mxnet-environment"
    CHECKS = "checks"
    SIGNAL = "signal"


def short_reason(error: RetryableError, *, step: Step) -> str:
    """Return the short name of a failure during an activity."""
    if isinstance(error, MxnetEnvironmentError):
        return f"engines: {error.short}"
    if isinstance(error, BootstrapError):
        return error.reason
    if isinstance(error, RecordError):
        return "bad-record"
    if isinstance(error, NO_CREDENTIALS):
        return "no-credentials"
    if isinstance(error, ClientError):
        return f"{error.operation_name}-{error.response['Error']['Code']}"
    if isinstance(error, BotoCoreError):
        return f"{step.value}-unreachable"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk-full"
    return f"{step.value}-{errno.errorcode.get(error.errno or 0, 'failed')}"


def replacement_would_help(error: RetryableError) -> bool:
    """Return True if the error is this machine's own; if AWS fails, a replacement would fail too."""
    if isinstance(error, OSError):
        return error.errno in BROKEN_DISK
    return isinstance(error, (HostKeyError, CommandError))


class FailureTracker:
    """Tracks the failure that keeps the agent's passes from succeeding; logs it only when it starts and ends."""

    def __init__(self) -> None:
        self.error: RetryableError | None = None
        self.reason: str | None = None
        """Short name of the error; None if the last pass succeeded."""
        self.failed_passes = 0
        """Number of consecutive failed passes."""

    def note(self, error: RetryableError | None, *, step: Step) -> None:
        """Record the outcome of a pass."""
        self.error = error
        self.failed_passes = 0 if error is None else self.failed_passes + 1
        reason = None if error is None else short_reason(error, step=step)
        if reason == self.reason:
            return
        if error is None:
            log.info("recovered from %s", self.reason)
        else:
            log.warning("%s: %s", reason, error)
        self.reason = reason
