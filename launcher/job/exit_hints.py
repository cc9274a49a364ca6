"""First words of a line: those that are launch's own, and advice where a command's end alone leads nowhere."""

import signal
from collections.abc import Sequence

from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND

VERBS = ("close", "list", "logs", "status", "stop")
"""First words that are not a command's: ``launch -- list`` runs a command of that name."""
OF_A_SHELL = frozenset(";&|<>$`()\n")
"""In a line with one of these, another command than the first may have failed."""
KILLED = 128 + signal.SIGKILL
"""What launcher.runner.processes reports then. The launcher's own KILL comes after a job's end is decided."""
LIKENESS = 0.7
"""By difflib's measure: `lst` and `stat` are like a verb, `ls` is not."""


def advice(code: int, command: Sequence[str]) -> str:
    """What to add to the exit code of `command`; empty where there is nothing to say."""
    if code == KILLED:
        return ": killed, as the kernel does where memory runs out"
    if code not in (CANNOT_RUN, NOT_FOUND) or (name := _name(command)) is None:
        return ""
    if code == CANNOT_RUN:
        # A path alone: what PATH led to, such as python, did run.
        return f": if Python is to run {name}: launch python {name}" if "/" in name else ""
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1, cutoff=LIKENESS)
    return f": no command {name}, did you mean launch {near[0]}?" if near else ""


def _name(command: Sequence[str]) -> str | None:
    """The word that a shell would look up; None where it may have been any of several."""
    words = list(command)
    if words[:2] == ["/bin/bash", "-c"]:
        if OF_A_SHELL.intersection(words[2]):
            return None
        import shlex

        try:
            words = shlex.split(words[2])
        except ValueError:  # the shell has said so
            return None
    return words[0] if words else None
