"""Define the errors that ``python -m local`` prints instead of a traceback."""


class LocalError(Exception):
    """Explain in one line why a local AWS cannot be started, found, entered or ended."""


class UsageError(LocalError):
    """Explain in one line what is wrong with a command line."""
