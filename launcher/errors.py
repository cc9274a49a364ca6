"""Define the errors that the launcher raises.

One that nothing else handles reaches main(), which prints it and exits with its code.
"""

from _collections_abc import Mapping  # importing collections is slow

UNKNOWN_HOST = "unknown-host"
UNKNOWN_HOST_KEY = "unknown-host-key"
LOGIN_DENIED = "login-denied"
NO_KEY_EXCHANGE = "no-key-exchange"
OTHER_VERSION = "other-version"
SILENT_SSH = "silent-ssh"
"""Kinds of LaunchError for a failed connection: ssh's messages, a runner of another release, and an ssh that failed
without a message.
"""


class LaunchError(Exception):
    """The job could not start, or ended without a rank's exit code."""

    exit_code = 1

    def __init__(self, reason: str, *, kind: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        """One of the kinds above; empty for any other error."""


class UnreachableError(LaunchError):
    """Some nodes could not be reached, so nothing was started."""

    def __init__(self, reason: str, *, permanent: bool) -> None:
        super().__init__(reason)
        self.permanent = permanent
        """True if a retry cannot help because ssh would be refused again."""


class BusyError(LaunchError):
    """The job's nodes are in use; nothing was started."""

    def __init__(self, reason: str, *, detail: str, nodes: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.detail = detail
        """The job or process that uses the GPUs, without advice."""
        self.nodes = nodes or {}
        """Users of each node's GPUs, by the node's name; empty if other nodes would not help."""


class QueueTimeoutError(LaunchError):
    """The job has waited in the queue for as long as it may."""


class RefusedError(LaunchError):
    """The job's nodes cannot run it, now or on a retry; nothing was started."""


class UsageError(RefusedError):
    """The command line, the environment or the hosts file is wrong."""

    exit_code = 2
