"""Define dlcluster's errors, and the exit codes on which scripts can rely.

cli.main turns an error that nobody handled into a line on stderr and an exit code. 0 is success, and 130 is Ctrl-C.
``ssh`` and ``run`` return the exit code of the command that they started.
"""

from typing import Final

EXIT_FAILED: Final = 1
"""AWS, the cluster or the connection failed."""
EXIT_USAGE: Final = 2
"""The command line, or a setting that it reads, is wrong."""
EXIT_NO_CLUSTER: Final = 3
"""The region has no such cluster."""
EXIT_CREDENTIALS: Final = 4
"""AWS does not accept the caller's credentials."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C; shells use the same number for a process ended by SIGINT."""

NUMBERS: Final = {"integer range": "a whole number", "integer": "a whole number", "float range": "a number"}
"""Names of click's types, each with the words of everyday language."""


class ClusterError(Exception):
    """The cluster, AWS or the connection failed; the base of every error here."""

    exit_code = EXIT_FAILED
    fix = ""
    """Advice that applies to every command; empty if there is none."""

    @property
    def full_message(self) -> str:
        """Return the message, followed by the advice if there is any."""
        return f"{self}: {self.fix}" if self.fix else str(self)


class NoClusterError(ClusterError):
    """The region has no such cluster."""

    exit_code = EXIT_NO_CLUSTER


class NoMembersError(ClusterError):
    """The cluster's master has not started yet."""


class ForgedRecordError(ClusterError):
    """The membership record names an instance that is not the cluster's."""


class CredentialsError(ClusterError):
    """AWS does not know the caller, or no longer does."""

    exit_code = EXIT_CREDENTIALS
    fix = "aws configure, aws sso login, or set AWS_PROFILE"


class NoAnswerError(ClusterError):
    """AWS did not answer: the network failed, or something else answered instead."""

    fix = "check the region, the network, the proxy (HTTPS_PROXY) and AWS_ENDPOINT_URL"


class UsageError(ClusterError):
    """The command line, or a setting in the environment, is wrong."""

    exit_code = EXIT_USAGE


class SeveralClustersError(UsageError):
    """The region has several clusters, and the command line names none."""


def in_our_style(message: str) -> str:
    """Return a message of click in the style of ours: one line, lower case, plain words, no final period."""
    line = " ".join(message.split()).removesuffix(".")
    for kind, words in NUMBERS.items():
        line = line.replace(f"is not a valid {kind}", f"is not {words}")
    return line[:1].lower() + line[1:]
