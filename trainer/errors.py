"""Define the errors that end a training run with one line, and shorten libraries' errors to one line."""

import re


class TrainerError(Exception):
    """Training cannot start or continue; exit code 1."""


class UsageError(TrainerError):
    """An option or an environment variable is wrong; exit code 2."""


class StoppedError(TrainerError):
    """A rank received a signal and all ranks stopped between two steps; the message says what was saved."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, without the advice that follows it."""
    return str(error).strip().partition("\n")[0]


def shorten_torch_message(message: str) -> str:
    """Return the first sentence of a message from torch, without the source file at its start.

    NCCL's messages have the reason after "Last error:"; append it.
    """
    without_file = re.sub(r"^(\[\S+:\d+\] |NCCL error in: \S+:\d+, )", "", message.strip())
    first = without_file.partition("\n")[0].partition(". ")[0]
    reason = re.search(r"^Last error:\n(.+)", message, flags=re.MULTILINE)
    return f"{first}: {reason[1]}" if reason else first
