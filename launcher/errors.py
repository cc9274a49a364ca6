"""Define the errors that the launcher raises; only main() catches them."""


class LaunchError(Exception):
    """The job could not be started, or ended without a rank's exit code."""

    exit_code = 1


class UnreachableError(LaunchError):
    """Some nodes could not be reached, and nothing was started."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final
        """Whether waiting is useless: ssh refuses, and will refuse again."""


class UsageError(LaunchError):
    """The command line, the environment or the hosts file is wrong."""

    exit_code = 2
