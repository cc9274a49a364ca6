"""Define the errors that the launcher raises; only main() catches them."""


class LaunchError(Exception):
    """The job could not start, or ended without a rank's exit code."""

    exit_code = 1


class UnreachableError(LaunchError):
    """Some nodes could not be reached, so nothing was started."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final
        """True if a retry cannot help: ssh is refused, and would be refused again."""


class UsageError(LaunchError):
    """The command line, the environment or the hosts file is wrong."""

    exit_code = 2
