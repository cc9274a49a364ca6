"""What the launcher raises; main() alone catches it."""


class LaunchError(Exception):
    """The job could not be started, or ended without a rank's exit code."""

    exit_code = 1


class UsageError(LaunchError):
    """The command line, the environment or the hosts file is wrong."""

    exit_code = 2
