"""Recognize programs that start ranks themselves: under launch, each copy would train its own model.

launch accepts torchrun's options because both do the same job (launcher.options.parser). It refuses the other programs
and shows the line that works. Any other command passes unchanged.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.errors import UsageError
from launcher.hosts.hostfile import Host
from launcher.shell_words import ASSIGNMENT, GLOB_CHARS, KEYWORDS, SHELL_OPERATORS, SHELLS

NESTED_LAUNCHERS = {
    "torchrun": "",
    "accelerate": "",
    "deepspeed": "",
    "horovodrun": "--framework horovod",
    "mpirun": "--launcher mpi",
    "mpiexec": "--launcher mpi",
    "srun": "",
}
"""Option of launch that replaces each program, by the program's name."""
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovodrun",
}
"""Program name by the module's name after ``python -m``."""
WRAPPERS = frozenset(
    (
        *("command", "env", "exec", "nice", "nohup", "numactl", "setsid", "stdbuf", "sudo", "time", "timeout"),
        *("conda", "pipenv", "poetry", "uv"),
    )
)
"""Programs that run another program, named on their command line."""
PYTHON = re.compile(r"python[0-9.]*")
WRAPPER_ARGUMENT = re.compile(r"-.*|[0-9.]+[smhd]?|run|--|" + ASSIGNMENT.pattern + ".*")
"""Words allowed between a wrapper and its command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedLauncherCall:
    """The call of a nested launcher."""

    name: str
    variables: tuple[str, ...]
    """Variable assignments before the program, if launch's line can include them."""
    python: str
    """Python that would run the script."""
    args: tuple[str, ...]
    """Words after the program's name."""
    is_plain: bool
    """True if only variable assignments precede the program and the line needs no shell."""


def find_nested_launcher(command: Sequence[str]) -> NestedLauncherCall | None:
    """Find the nested launcher that `command` calls, either as separate words or within a shell line."""
    args = list(command)
    while len(args) > 1 and ASSIGNMENT.match(args[0]):
        args.pop(0)
    if len(args) == 1 and " " in args[0]:
        return _parse_line(args[0], before=tuple(command[:-1]))
    args = list(command[_program_index(command) :])
    if args and _name(args[0]) in SHELLS:
        lines = (line for at, line in enumerate(args[2:], 2) if re.fullmatch(r"-\w*c", args[at - 1]))
        return next(filter(None, (_parse_line(line, before=("sh",)) for line in lines)), None)
    return _parse_call(command)


def _parse_line(line: str, *, before: tuple[str, ...]) -> NestedLauncherCall | None:
    if not any(name in line for name in (*NESTED_LAUNCHERS, *MODULES)):
        return None
    import shlex

    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&`\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        tokens = list(lexer)
    except ValueError:  # The shell will report it.
        return None
    if before[:1] != ("sh",) and not (SHELL_OPERATORS | GLOB_CHARS).intersection(line):
        return _parse_call((*before, *tokens))
    call: list[str] = []
    for token in (*tokens, ";"):
        if not SHELL_OPERATORS.issuperset(token):
            if call or token not in KEYWORDS:
                call.append(token)
        elif (nested := _parse_call(call)) is not None:
            return replace(nested, variables=(), is_plain=False)
        else:
            call = []
    return None


def _parse_call(command: Sequence[str]) -> NestedLauncherCall | None:
    """Find the nested launcher that a simple command calls."""
    start = _program_index(command)
    before, args = tuple(command[:start]), tuple(command[start:])
    if not args:
        return None
    variables = before[1:] if before[:1] == ("env",) else before
    is_plain = all(ASSIGNMENT.match(word) for word in variables)
    name, python, rest = _name(args[0]), "python", args[1:]
    if PYTHON.fullmatch(name):
        module, module_args = _split_module(rest)
        if module not in MODULES:
            return None
        name, python, rest = MODULES[module], args[0], module_args
    elif name not in NESTED_LAUNCHERS or (name == "accelerate" and rest[:1] != ("launch",)):
        return None
    elif "/" in args[0]:
        python = f"{args[0].rpartition('/')[0]}/python"
    if name == "accelerate" and rest[:1] == ("launch",):
        rest = rest[1:]
    return NestedLauncherCall(name=name, variables=variables, python=python, args=rest, is_plain=is_plain)


def _split_module(args: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Split Python's arguments after ``-m`` into the module and its own arguments; without a module, return "", ()."""
    for index, word in enumerate(args):
        if word == "-m":
            return next(iter(args[index + 1 :]), ""), args[index + 2 :]
        if not word.startswith("-"):
            break
    return "", ()


def _program_index(command: Sequence[str]) -> int:
    """Return the index of the program that a line finally runs."""
    start, wraps, after_option = 0, False, False
    while start < len(command):
        word = command[start]
        name = _name(word)
        if name in WRAPPERS:
            wraps = True
        elif ASSIGNMENT.match(word) or (wraps and WRAPPER_ARGUMENT.fullmatch(word)):
            pass
        elif not (after_option and name not in NESTED_LAUNCHERS and not PYTHON.fullmatch(name)):
            break
        after_option = wraps and word.startswith("-")
        start += 1
    return start


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def refuse_nested_launchers(command: Sequence[str], *, options: Sequence[str], hosts: Sequence[Host]) -> None:
    """Raise UsageError with the line that works if `command` starts several ranks itself."""
    nested, processes = find_nested_launcher(command), sum(host.slots for host in hosts)
    if nested is None or processes == 1:
        return
    problem = f"{nested.name} starts ranks itself: each of the {processes} processes would train its own model"
    args = _script(nested.args)
    import shlex

    if not nested.is_plain:
        line = shlex.join(args)
        raise UsageError(
            f"{problem}; launch starts the ranks: write only {line} in its place, and its options to launch"
        )
    extra = NESTED_LAUNCHERS.get(nested.name, "").split()
    option = [] if extra[:1] and extra[0] in options else extra
    line = shlex.join(("launch", *options, *option, *nested.variables, *args))
    raise UsageError(f"{problem}; launch starts the ranks, as in: {line}")


def _script(args: Sequence[str]) -> tuple[str, ...]:
    """Return the part of a nested launcher's line that each rank runs."""
    for index, word in enumerate(args):
        if word.endswith(".py"):
            return ("python", *args[index:])
        if PYTHON.fullmatch(_name(word)):
            return tuple(args[index:])
    return ("python", "train.py")
