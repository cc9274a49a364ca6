"""List the failures that only delay the agent, and name each for a failure signal."""

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
"""What a pass may raise: AWS, the metadata service or the disk has a problem for now.

Anything else is a defect of the agent: it ends with a traceback in the journal, and systemd
restarts it.
"""
BROKEN_DISK: Final = frozenset({errno.EIO, errno.EROFS})
"""Errors of a failing disk; a full disk is no defect."""
NO_CREDENTIALS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


def reason(error: Delay, *, doing: str) -> str:
    """Return the short name of a failure; ``doing`` names what the agent was using."""
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
    """Return whether a replacement of this machine would help; a failure of AWS meets every machine."""
    if isinstance(error, OSError):
        return error.errno in BROKEN_DISK
    return isinstance(error, (HostKeyError, CommandError))
