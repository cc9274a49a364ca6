"""What the agent reports in one line; ``main`` catches the base class and nothing else does."""

from typing import ClassVar


class BootstrapError(Exception):
    """Base of this program's errors."""

    reason: ClassVar[str] = "bootstrap-failed"
    """Short slug for a failure signal, which has no room for the message."""


class ConfigError(BootstrapError):
    """The node's configuration cannot be used; only a new deploy can mend it."""

    reason = "bad-config"


class MetadataError(BootstrapError):
    """The instance metadata service did not answer as it should."""

    reason = "metadata-unreachable"


class HostKeyError(BootstrapError):
    """The SSH host key is not there, or is not what we publish."""

    reason = "no-host-key"


class TableBusyError(BootstrapError):
    """The table kept part of a batch unprocessed."""

    reason = "table-busy"


class GroupsError(BootstrapError):
    """The cluster's Auto Scaling groups are not to be seen (yet)."""

    reason = "no-groups"


class CommandError(BootstrapError):
    """A program of the operating system failed."""

    reason = "command-failed"


class FrameworkError(BootstrapError):
    """The node's environment cannot be had; ``short`` fits into a failure signal.

    ``lasting``: it would fail again, however often it is tried.
    """

    reason = "engines-failed"

    def __init__(self, short: str, detail: str, *, lasting: bool = False) -> None:
        super().__init__(detail)
        self.short = short
        self.lasting = lasting
