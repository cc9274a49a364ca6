"""Failures that only delay the agent, and their short names for a failure signal."""

import errno
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from bootstrap.cluster.record_fields import RecordError
from bootstrap.errors import BootstrapError, CommandError, FrameworkError, HostKeyError

Delay = BootstrapError | RecordError | BotoCoreError | ClientError | OSError
DELAYS: Final = (BootstrapError, RecordError, BotoCoreError, ClientError, OSError)
"""What a pass may fail with: AWS, the metadata service or the disk is not well just now.

Anything else is a defect: it ends the agent with a traceback in the journal, and systemd
starts it again.
"""
BROKEN_DISK: Final = frozenset({errno.EIO, errno.EROFS})
"""What a failing disk answers; a full one is no defect."""
NO_CREDENTIALS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


def reason(error: Delay, *, doing: str) -> str:
    """Short name of a failure; ``doing`` says what was being talked to."""
    if isinstance(error, FrameworkError):
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
        return f"{doing}-unreachable"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk-full"
    return f"{doing}-{errno.errorcode.get(error.errno or 0, 'failed')}"


def is_own(error: Delay) -> bool:
    """Whether another machine in this one's place would help; AWS's troubles are everybody's."""
    if isinstance(error, OSError):
        return error.errno in BROKEN_DISK
    return isinstance(error, (HostKeyError, CommandError))
