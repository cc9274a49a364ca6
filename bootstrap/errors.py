"""Define the errors that the agent reports in one line; only ``main`` catches the base class."""

from typing import ClassVar


class BootstrapError(Exception):
    """Base class of this program's errors."""

    reason: ClassVar[str] = "bootstrap-failed"
    """Short name for a failure signal, which has no room for the message."""


class ConfigError(BootstrapError):
    """The node's configuration is bad; only another deploy can fix it."""

    reason = "bad-config"


class MetadataError(BootstrapError):
    """The instance metadata service failed or gave a bad answer."""

    reason = "metadata-unreachable"


class HostKeyError(BootstrapError):
    """The SSH host key is missing or of another type."""

    reason = "no-host-key"


class TableBusyError(BootstrapError):
    """The table left part of a batch unprocessed."""

    reason = "table-busy"


class GroupsError(BootstrapError):
    """The cluster's Auto Scaling groups do not exist yet."""

    reason = "no-groups"


class CommandError(BootstrapError):
    """A program of the operating system failed."""

    reason = "command-failed"


class MxnetEnvironmentError(BootstrapError):
    """The MXNet environment cannot be provided; ``short`` fits into a failure signal.

    ``is_permanent`` means that a retry would fail in the same way.
    """

    reason = "mxnet-failed"

    def __init__(self, short: str, detail: str, *, is_permanent: bool = False) -> None:
        super().__init__(detail)
        self.short = short
        self.is_permanent = is_permanent


class SetupError(BootstrapError):
    """The user's setup has failed on this node; ``short`` fits into a failure signal.

    ``transient`` means that a second run may succeed.
    """

    reason = "setup-failed"

    def __init__(self, short: str, detail: str, *, transient: bool = False) -> None:
        super().__init__(detail)
        self.short = short
        self.transient = transient
