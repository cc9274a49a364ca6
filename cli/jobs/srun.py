"""Translate a line of Slurm's ``srun`` into one of ``dlcluster run``."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

NODES: Final = ("-N", "--nodes")
"""Spellings of the option for the number of nodes, whose value may be the next word."""
JOINED_NODES: Final = re.compile(r"(?:-N|--nodes=)([1-9]\d*)")
"""Matches that option with its value in one word; a range of numbers has no counterpart."""


def run_line(args: Sequence[str]) -> str | None:
    """Return the line for the arguments of an ``srun``; None without a command, or with options other than ``-N``."""
    options, command = list[str](), list(args)
    while command and command[0].startswith("-"):
        word = command.pop(0)
        if word in NODES and command:
            word = f"-N{command.pop(0)}"
        match = JOINED_NODES.fullmatch(word)
        if match is None:
            return None
        options = ["-n", match[1]]
    return shlex.join(["dlcluster", "run", *options, "--", *command]) if command else None
