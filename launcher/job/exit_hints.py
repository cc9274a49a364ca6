"""Explain exit codes."""

import re
import signal
from collections.abc import Iterable, Sequence

from launcher.shell_words import SHELLS, command_words
from launcher.subcommand_names import SUBCOMMANDS
from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND

SIGNAL_HINTS = {
    128 + signal.SIGABRT: "aborted (SIGABRT), often a failed check in native code or NCCL's watchdog",
    128 + signal.SIGBUS: "bus error (SIGBUS), often a full /dev/shm",
    # The launcher sends KILL only after a failure is known.
    128 + signal.SIGKILL: "killed (SIGKILL), often out of memory",
    128 + signal.SIGSEGV: "segmentation fault (SIGSEGV), a crash in native code",
}
"""Explanations of the exit codes of processes that a signal ended."""
SIMILARITY = 0.7
"""Smallest difflib ratio at which a word counts as a misspelled subcommand: `lst` and `stat` do, `ls` does not."""
OTHER_TOOLS_VARIABLE = re.compile(rb"KeyError: '((?:SKYPILOT|SLURM)_[A-Z_]{1,80})'")
MISSING_MODULE = re.compile(rb"ModuleNotFoundError: No module named '([A-Za-z0-9_]{1,80})")
PIP = re.compile("pip[0-9.]*")


def exit_hint(code: int, command: Sequence[str], tail: Iterable[bytes] = ()) -> str:
    """Return an explanation to append to the exit code of `command`, or an empty string.

    `tail` is the last lines of its output.
    """
    missing = [match[1].decode() for line in tail if (match := MISSING_MODULE.match(line))]
    if code == 1 and missing:
        return f": no module {missing[-1]}: the setting requirements installs packages on every node"
    foreign = [match[1].decode() for line in tail if (match := OTHER_TOOLS_VARIABLE.match(line))]
    if code == 1 and foreign:
        return f": {foreign[-1]} is another tool's variable: launch sets torchrun's (RANK, WORLD_SIZE, GROUP_RANK, ...)"
    if code in SIGNAL_HINTS:
        return f": {SIGNAL_HINTS[code]}"
    if code not in (CANNOT_RUN, NOT_FOUND) or not (words := command_words(command)):
        return ""
    name = words[0]
    if code == CANNOT_RUN:
        # Check only paths: a program found through PATH, such as python, did run.
        return f": if Python is to run {name}: launch python {name}" if "/" in name else ""
    if script := _script(words):
        return f": {script}, or a command in it, was not found"
    import difflib

    near = difflib.get_close_matches(name, SUBCOMMANDS, n=1, cutoff=SIMILARITY)
    if near:
        return f": no command {name}, did you mean launch {near[0]}?"
    if PIP.fullmatch(name):
        line = "launch --nproc-per-node 1 python -m pip install ..."
        return f": no command {name}: {line}, or the setting requirements, which lasts"
    return f": no command {name}: the setting setup installs programs on every node"


def _script(words: Sequence[str]) -> str | None:
    """Return what runs further commands: FILE in ``bash -e FILE``, the shell in ``bash -c LINE``, a path as in ./FILE.

    None means that `words` name a program.
    """
    name = words[0].rpartition("/")[2]
    if name not in SHELLS:
        return words[0] if name != words[0] else None
    return next((word for word in words[1:] if not word.startswith("-") and " " not in word), words[0])
