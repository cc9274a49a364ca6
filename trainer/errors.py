"""The errors that the trainer reports in one line; only main() catches them."""


class TrainerError(Exception):
    """The training cannot start or go on; exit status 1."""


class UsageError(TrainerError):
    """A wrong option, or wrong environment variables; exit status 2."""


class StoppedError(TrainerError):
    """A rank was told to stop, and all have, between two steps; the message says what is kept."""
