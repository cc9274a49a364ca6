"""Explain exit codes that alone would leave the user puzzled."""

import signal
from collections.abc import Sequence

from launcher.shell_words import command_word
from launcher.subcommands import SUBCOMMANDS
from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND

KILLED = 128 + signal.SIGKILL
"""Exit code of a killed process. The launcher's own KILL comes only after a job's end is decided."""
LIKENESS = 0.7
"""By difflib's measure `lst` and `stat` resemble a subcommand, `ls` does not."""


def exit_hint(code: int, command: Sequence[str]) -> str:
    """Return what to add to the exit code of `command`, or an empty string."""
    if code == KILLED:
        return ": killed, as the kernel does where memory runs out"
    if code not in (CANNOT_RUN, NOT_FOUND) or (name := command_word(command)) is None:
        return ""
    if code == CANNOT_RUN:
        # Only for a path: what PATH led to, such as python, did run.
        return f": if Python is to run {name}: launch python {name}" if "/" in name else ""
    import difflib

    near = difflib.get_close_matches(name, SUBCOMMANDS, n=1, cutoff=LIKENESS)
    return f": no command {name}, did you mean launch {near[0]}?" if near else ""
