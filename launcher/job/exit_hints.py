"""Name launch's subcommands, and explain exit codes that alone would leave the user puzzled."""

import signal
from collections.abc import Sequence

from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND

VERBS = ("close", "list", "logs", "status", "stop")
"""Subcommands: ``launch -- list`` runs a command of that name instead."""
OF_A_SHELL = frozenset(";&|<>$`()\n")
"""If a line contains one of these, another command than the first may have failed."""
KILLED = 128 + signal.SIGKILL
"""Exit code of a killed process. The launcher's own KILL comes only after a job's end is decided."""
LIKENESS = 0.7
"""By difflib's measure `lst` and `stat` resemble a subcommand, `ls` does not."""


def exit_hint(code: int, command: Sequence[str]) -> str:
    """Return what to add to the exit code of `command`, or an empty string."""
    if code == KILLED:
        return ": killed, as the kernel does where memory runs out"
    if code not in (CANNOT_RUN, NOT_FOUND) or (name := _name(command)) is None:
        return ""
    if code == CANNOT_RUN:
        # Only for a path: what PATH led to, such as python, did run.
        return f": if Python is to run {name}: launch python {name}" if "/" in name else ""
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1, cutoff=LIKENESS)
    return f": no command {name}, did you mean launch {near[0]}?" if near else ""


def _name(command: Sequence[str]) -> str | None:
    """Return the word that a shell would look up; None if it may be any of several."""
    words = list(command)
    if words[:2] == ["/bin/bash", "-c"]:
        if OF_A_SHELL.intersection(words[2]):
            return None
        import shlex

        try:
            words = shlex.split(words[2])
        except ValueError:  # the shell has reported it
            return None
    return words[0] if words else None
