"""Define the errors that the launcher raises.

An error that nothing else handles reaches main(), which prints the error and exits with its exit code.
"""

from _collections_abc import Mapping  # importing collections is slow


class ErrorKind:
    """Kinds of NodeError for a failed connection. Not an Enum, because importing enum is slow."""

    UNKNOWN_HOST = "unknown-host"
    UNKNOWN_HOST_KEY = "unknown-host-key"
    LOGIN_DENIED = "login-denied"
    NO_KEY_EXCHANGE = "no-key-exchange"
    OTHER_VERSION = "other-version"
    """The runner is of another release."""
    SILENT_SSH = "silent-ssh"
    """ssh failed without a message."""
    OTHER = ""


class LaunchError(Exception):
    """The job could not start, or ended without a rank's exit code."""

    exit_code = 1


class NodeError(LaunchError):
    """A node cannot be reached, was lost, or could not carry out a request; the message begins with its name."""

    def __init__(self, host: str, cause: str, *, kind: str = ErrorKind.OTHER) -> None:
        super().__init__(f"{host}: {cause}")
        self.host = host
        """Name of the node, with its port if it has one."""
        self.cause = cause
        self.kind = kind
        """Kind of a failed connection; ErrorKind.OTHER for any other error."""


class UnreachableError(LaunchError):
    """Some nodes could not be reached, so nothing was started."""

    def __init__(self, reason: str, *, permanent: bool) -> None:
        super().__init__(reason)
        self.permanent = permanent
        """True if a retry cannot help because ssh would be refused again."""


class BusyError(LaunchError):
    """The job's nodes are in use; nothing was started."""

    def __init__(self, reason: str, *, detail: str, users_by_node: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.detail = detail
        """The job or process that uses the GPUs, without advice."""
        self.users_by_node = users_by_node or {}
        """Users of each node's GPUs, by the node's name; empty if other nodes would not help."""


class QueueTimeoutError(LaunchError):
    """The job has waited in the queue for as long as it may."""


class RefusedError(LaunchError):
    """The job's nodes cannot run it, now or on a retry; nothing was started."""


class UsageError(RefusedError):
    """The command line, the environment or the hosts file is wrong."""

    exit_code = 2
