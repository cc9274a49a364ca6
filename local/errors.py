"""What ``python -m local`` says instead of a traceback."""


class LocalError(Exception):
    """Why a local AWS cannot be had, found, entered or ended, in one line."""


class UsageError(LocalError):
    """Why a command line makes no sense, in one line."""
