"""List the errors after which the agent retries, and name each for a failure signal."""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """A step of the agent's pass, part of the short name of a failure."""

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
    """Return the short name of a failure in a step."""
    if isinstance(error, MxnetEnvironmentError):
        return f"mxnet: {error.short}"
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


def attempt(action: Callable[[], None]) -> RetryableError | None:
    """Perform the action; return its error, None if it succeeded."""
    try:
        action()
    except RETRYABLE_ERRORS as error:
        return error
    return None


class FailureTracker:
    """Tracks the failure that keeps the agent's passes from succeeding; logs it only when it starts and ends."""

    def __init__(self) -> None:
        self.error: RetryableError | None = None
        """The error that ended the last pass; None if it succeeded."""
        self.failed_step: Step | None = None
        """The step in which that error occurred; None if it occurred between two steps."""
        self.reason: str | None = None
        """Short name of the error; None if the last pass succeeded."""
        self.failed_passes = 0
        """Number of consecutive failed passes."""

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Mark the step as failed if an error ends it."""
        try:
            yield
        except RETRYABLE_ERRORS:
            self.failed_step = step
            raise

    def run(self, converge: Callable[[], None]) -> None:
        """Run one pass, and record its outcome."""
        self.failed_step = None
        self.error = error = attempt(converge)
        self.failed_passes = 0 if error is None else self.failed_passes + 1
        # Between the steps, a pass only reads the setup's progress file.
        reason = None if error is None else short_reason(error, step=self.failed_step or Step.FILES)
        if reason == self.reason:
            return
        if error is None:
            log.info("recovered from %s", self.reason)
        else:
            log.warning("%s: %s", reason, error)
        self.reason = reason
