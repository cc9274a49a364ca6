"""Check shell scripts: refuse one that the nodes would not find or run, and note Slurm's commands in one.

A job script of Slurm is such a file: sbatch finds it without a path, and runs it without permission to execute.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from cli.errors import UsageError
from cli.jobs.script import SCRIPT
from cli.output import printable

SHELL: Final = "bash"
SHELL_SCRIPT: Final = ".sh"
SHELLS: Final = re.compile("(?:.*/)?(?:ba|da|k|z)?sh")
SHELL_OPTIONS: Final = re.compile("-[eluvx]+")
"""Matches options without a value after which a script may follow; after ``-c`` there is none."""
SHEBANG: Final = re.compile(r"#![ \t]*(\S.*)")
SLURM_OPTION: Final = re.compile(r"^#SBATCH\b", re.MULTILINE)
SLURM_COMMAND: Final = re.compile(r"^[ \t]*(?:exec[ \t]+)?(srun|sbatch|module)[ \t]", re.MULTILINE)
MAX_CHARACTERS: Final = 64 * 1024
"""Number of characters to read; sbatch's options stand above the first command."""
PAGE: Final = "docs/from-slurm.md"


def find_shell_script(command: Sequence[str]) -> Path | None:
    """Return the shell script that a command runs, or None: ``bash [-eux] train.sh ...``."""
    args = list(command)
    if not SHELLS.fullmatch(args[0]):
        return None
    args = args[1:]
    while args and SHELL_OPTIONS.fullmatch(args[0]):
        args = args[1:]
    return Path(args[0]) if args and args[0].endswith(SHELL_SCRIPT) else None


def check_shell_script(command: Sequence[str]) -> None:
    """Raise UsageError for a script that does not run as a program; print a note if one calls Slurm's commands."""
    _require_executable(command)
    _note_slurm_commands(find_shell_script(command))


def _require_executable(command: Sequence[str]) -> None:
    """Raise UsageError with the line to write if the command's first word is a script that does not run as a program.

    The launcher itself runs Python's files with python. A word without a slash may be a program of the nodes, unless
    it looks like a script's name.
    """
    name = command[0]
    path = Path(name)
    if name.endswith(SCRIPT) or path.is_absolute() or not path.is_file():
        return
    has_path = "/" in name
    if has_path and os.access(path, os.X_OK):
        return
    text = _beginning(path)
    is_slurm = SLURM_OPTION.search(text) is not None
    interpreter = _interpreter(text) or ([SHELL] if is_slurm or name.endswith(SHELL_SCRIPT) else [])
    if not interpreter or not (has_path or is_slurm or path.suffix):
        return
    reason = f"{printable(name)!r} is not executable" if has_path else f"no program {printable(name)!r}"
    line = printable(shlex.join([*interpreter, *command]))
    slurm = f"; its #SBATCH lines have no effect, {PAGE} says what replaces them" if is_slurm else ""
    raise UsageError(f"{reason}: write dlcluster run -- {line}{slurm}")


def _note_slurm_commands(script: Path | None) -> None:
    """Print a note if a script calls commands of a Slurm cluster; it may have a way around them."""
    text = "" if script is None else _beginning(script)
    if names := " and ".join(dict.fromkeys(SLURM_COMMAND.findall(text))):
        print(
            f"dlcluster: note: {printable(str(script))} calls {names}, not needed here: "
            f"every process runs the script ({PAGE})",
            file=sys.stderr,
        )


def _beginning(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_CHARACTERS)
    except OSError:
        return ""


def _interpreter(text: str) -> list[str]:
    """Return the program of the first line and its options, without the directory; empty if the line names none."""
    match = SHEBANG.match(text)
    args = match[1].split() if match else []
    if args and PurePosixPath(args[0]).name == "env":
        args = [word for word in args[1:] if word != "-S"]
    return [PurePosixPath(args[0]).name, *args[1:]] if args else []
