"""Define the special words and characters of a shell's command line; see POSIX.1-2017, Shell Command Language."""

import re
from collections.abc import Sequence

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
"""Matches the beginning of a word that sets a variable before the command; env(1) allows letters of any language."""
SHELL_OPERATORS = frozenset(";&|<>$`()\n")
"""Operators after which the failed command may be another than the first."""
GLOB_CHARS = frozenset("*?[{~")
"""Characters that a shell expands, besides SHELL_OPERATORS."""
KEYWORDS = frozenset(("!", "{", "do", "elif", "else", "if", "then", "until", "while"))
"""Words after which a command follows (Shell, 2.4)."""
SHELLS = frozenset(("bash", "dash", "sh", "zsh"))
"""Programs that run the line after ``-c``."""


def command_words(command: Sequence[str]) -> Sequence[str]:
    """Return the words of the command that a shell would look up, then its arguments; none if it has several."""
    args = list(command)
    if args[:2] == ["/bin/bash", "-c"]:
        if SHELL_OPERATORS.intersection(args[2]):
            return []
        import shlex

        try:
            return shlex.split(args[2])
        except ValueError:  # The shell has reported it.
            return []
    return args
