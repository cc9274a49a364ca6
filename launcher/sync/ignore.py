"""Exclude files from a sync by patterns as in a .gitignore (gitignore(5)).

The last matching pattern wins. A pattern after ``!`` includes what an earlier one excluded, except below an excluded
directory.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import UsageError
from launcher.sync.request import IGNORE_FILE

DEFAULTS = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".launch-part-*",  # Files that a node has received only in part (launcher.runner.sync.part_file).
    # If users sync their home directory, their keys and the launcher's own files stay out.
    "/.ssh",
    "/.aws",
    "/.local/state/deeplearning",
)


@dataclass(frozen=True, slots=True)
class _Rule:
    regex: re.Pattern[str]
    negated: bool
    directories_only: bool


class Ignore:
    """Patterns, in order."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._rules = [rule for pattern in patterns if (rule := _rule(pattern)) is not None]

    def matches(self, path: str, *, is_directory: bool) -> bool:
        """Return True if a path below the source is excluded, assuming that none of its parents is."""
        for rule in reversed(self._rules):
            if (is_directory or not rule.directories_only) and rule.regex.fullmatch(path):
                return not rule.negated
        return False

    def excludes(self, path: str, *, is_directory: bool) -> bool:
        """Return True if a path or one of its parents is excluded."""
        parents = [path[:end] for end, character in enumerate(path) if character == "/"]
        above = any(self.matches(parent, is_directory=True) for parent in parents)
        return above or self.matches(path, is_directory=is_directory)


def read_ignore(source: Path, *, excludes: Sequence[str]) -> Ignore:
    """Read the defaults, then the source's patterns, then those of the command line."""
    file = source / IGNORE_FILE
    try:
        patterns = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        patterns = []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UsageError(f"cannot read {file}: {reason}") from error
    return Ignore([*DEFAULTS, *patterns, *excludes])


def _rule(line: str) -> _Rule | None:
    pattern = line if line.endswith("\\ ") else line.rstrip()
    if not pattern or pattern.startswith("#"):
        return None
    negated = pattern.startswith("!")
    body = pattern.removeprefix("!")
    directories_only = body.endswith("/")
    body = body.removesuffix("/")
    anywhere = "/" not in body
    try:
        regex = re.compile(("(?:.*/)?" if anywhere else "") + _regex(body.removeprefix("/")), re.DOTALL)
    except re.error as error:
        raise UsageError(f"--sync-exclude and .launchignore take patterns as in a .gitignore, got {line!r}") from error
    return _Rule(regex=regex, negated=negated, directories_only=directories_only)


TOKEN = re.compile(r"^\*\*/|/\*\*/|/\*\*$|\*+|\?|\\.|\[[!^]?\]?[^]]*\]|.", re.DOTALL)


def _regex(body: str) -> str:
    return "".join(_translate(match[0]) for match in TOKEN.finditer(body))


def _translate(token: str) -> str:
    special = {"**/": "(?:.*/)?", "/**/": "/(?:.*/)?", "/**": "/.*", "?": "[^/]"}
    if token in special:
        return special[token]
    if set(token) == {"*"}:
        return "[^/]*"
    if len(token) > 2 and token[0] == "[":
        inside = token[1:-1]
        negated = inside[:1] in ("!", "^")
        characters = inside[negated:].replace("\\", "\\\\").replace("[", "\\[")
        return f"(?!/)[{'^' if negated else ''}{characters}]"
    return re.escape(token[1:] if len(token) == 2 and token[0] == "\\" else token)
