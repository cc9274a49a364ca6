"""Explain the exit codes that do not explain themselves."""

import signal
from collections.abc import Sequence

from launcher.shell_words import command_word
from launcher.subcommands import SUBCOMMANDS
from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND

KILLED = 128 + signal.SIGKILL
"""Exit code of a killed process. The launcher's own KILL comes only after a job's end is decided."""
SIMILARITY = 0.7
"""Least ratio of difflib at which a word counts as a misspelt subcommand: `lst` and `stat` do, `ls` does not."""


def exit_hint(code: int, command: Sequence[str]) -> str:
    """Return what to add to the exit code of `command`, or an empty string."""
    if code == KILLED:
        return ": killed (SIGKILL), often out of memory"
    if code not in (CANNOT_RUN, NOT_FOUND) or (name := command_word(command)) is None:
        return ""
    if code == CANNOT_RUN:
        # Only for a path: what PATH led to, such as python, did run.
        return f": if Python is to run {name}: launch python {name}" if "/" in name else ""
    import difflib

    near = difflib.get_close_matches(name, SUBCOMMANDS, n=1, cutoff=SIMILARITY)
    return f": no command {name}, did you mean launch {near[0]}?" if near else ""
