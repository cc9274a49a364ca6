"""Define what ``dlcluster`` raises and the exit codes that scripts can rely on; cli.main alone catches the errors.

0 is success, and 130 is Ctrl-C. ``ssh`` and ``run`` return the exit code of the command that they started.
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
"""Ctrl-C; the number that shells give to a process that SIGINT ended."""


class ClusterError(Exception):
    """Report that the cluster, AWS or the connection is not as needed."""

    exit_code = EXIT_FAILED
    fix = ""
    """Advice that helps whatever the command was; empty if there is none."""


class NoClusterError(ClusterError):
    """Report that the region has no such cluster."""

    exit_code = EXIT_NO_CLUSTER


class CredentialsError(ClusterError):
    """Report that AWS does not know the caller, or no longer does."""

    exit_code = EXIT_CREDENTIALS
    fix = "aws configure, aws sso login, or set AWS_PROFILE"


class NoAnswerError(ClusterError):
    """Report that AWS did not answer: the network failed, or something else answered in its place."""

    fix = "check the region, the network, the proxy (HTTPS_PROXY) and AWS_ENDPOINT_URL"


class UsageError(ClusterError):
    """Report a wrong command line, or a wrong setting in the environment."""

    exit_code = EXIT_USAGE
