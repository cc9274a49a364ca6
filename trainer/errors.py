"""Define the errors that end a training run with one line, and shorten those of libraries to one."""

import re


class TrainerError(Exception):
    """Training cannot start or continue; exit status 1."""


class UsageError(TrainerError):
    """An option or an environment variable is wrong; exit status 2."""


class StoppedError(TrainerError):
    """A rank received a signal, so all ranks stopped between two steps; the message says what was saved."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, without the advice below it."""
    return str(error).strip().partition("\n")[0]


def shorten_torch_message(message: str) -> str:
    """Return the first sentence of a message from torch, without the source file it may start with.

    A message from NCCL has its reason further down, after "Last error:"; append it.
    """
    without_file = re.sub(r"^(\[\S+:\d+\] |NCCL error in: \S+:\d+, )", "", message.strip())
    first = without_file.partition("\n")[0].partition(". ")[0]
    reason = re.search(r"^Last error:\n(.+)", message, flags=re.MULTILINE)
    return f"{first}: {reason[1]}" if reason else first
