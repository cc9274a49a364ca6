"""Build the program of every rank from the command that follows launch's options."""

import argparse
import os
import re
from collections.abc import Sequence
from itertools import takewhile

from launcher.errors import UsageError
from launcher.options.nested_launchers import NestedLauncherCall
from launcher.shell_words import ASSIGNMENT

SCRIPT = re.compile(r"[\w@%+=:,./-]+\.py", re.ASCII)
"""File name that a shell would not expand (as in shlex.quote)."""
PYTHON = ("python", "-u")


def launch_args(arguments: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return the part of the command line before the command."""
    args = list(arguments[: len(arguments) - len(options.command)])
    return args[:-1] if args[-1:] == ["--"] else args


def command_args(options: argparse.Namespace) -> list[str]:
    """Return the command as the user typed it, without the ``--`` before it."""
    return list(options.command[1:] if options.command[:1] == ["--"] else options.command)


def torchrun_command(nested: NestedLauncherCall, options: argparse.Namespace) -> list[str]:
    """Return the script of a torchrun line, run by the Python in which torchrun is installed.

    Clear options.module, which the script then contains.
    """
    if options.no_python:
        return [*nested.variables, *command_args(options)]
    python = [nested.python, "-u", *(["-m"] if options.module else [])]
    options.module = False
    return [*nested.variables, *python, *command_args(options)]


def build_program(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the program that every rank runs, with its arguments."""
    args = tuple(command_args(options))
    if not args or not args[0]:
        raise UsageError("no command given, as in: launch python train.py")
    # launch.py passes the command to a shell, which treats a leading NAME=value as a variable.
    variables = tuple(takewhile(ASSIGNMENT.match, args[:-1]))
    program = _with_python(args[len(variables) :], options)
    if len(program) == 1:
        # Like launch.py, treat a single word as a line quoted for a shell.
        program = ("/bin/bash", "-c", *program)
    return ("env", *variables, *program) if variables else program


def _with_python(args: Sequence[str], options: argparse.Namespace) -> tuple[str, ...]:
    """Put python before a module and before a .py file, unless the file is executable."""
    if options.module and options.no_python:
        raise UsageError("-m runs python and cannot be combined with --no-python")
    if options.module:
        return (*PYTHON, "-m", *args)
    if args and not options.no_python and SCRIPT.fullmatch(args[0]) and not _is_executable(args[0]):
        return (*PYTHON, *args)
    return tuple(args)


def _is_executable(path: str) -> bool:
    """Return True if a shell would run the file with the interpreter on its first line."""
    return "/" in path and os.access(path, os.X_OK)
