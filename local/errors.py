"""Define the errors that ``python -m local`` prints instead of a traceback."""


class LocalError(Exception):
    """A local AWS cannot be started, found, entered or ended; the message explains why in one line."""


class UsageError(LocalError):
    """A command line is wrong; the message explains how in one line."""
