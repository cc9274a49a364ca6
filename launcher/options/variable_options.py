"""Parse ``--env`` and ``--secret``, and refuse values that a durable job must not store."""

import argparse
import re
from collections.abc import Mapping, Sequence

from bootstrap.contract import SECRETS_FORMS, SECRETS_PATTERN
from launcher.errors import UsageError
from launcher.frameworks import load_framework

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Matches a shell variable's name (POSIX.1-2017, Base Definitions 3.235, Name)."""
MAX_SECRETS = 20
"""Maximum number of secrets; every node reads all of them simultaneously."""
SECRET = re.compile(
    r"(?:SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(?:^|_|API)KEY|(?:^|_)PAT)$", re.IGNORECASE
)
"""Matches the name of a variable that probably contains a secret."""
ASSIGNED = re.compile(r"(?:^|[\s;&|('\"`])([A-Za-z_]\w*)=")
"""Matches variables that a command sets."""
SEPARATOR = re.compile("[=:]")
"""Matches what separates a name from its value; the colon is deeplearning-cfn's."""
INSTEAD = "or have the nodes read it (--secret)"


def add_variable_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--env`` and ``--secret``."""
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="variable for every rank (also KEY:VALUE); KEY alone passes on this shell's value, hidden from process "
        "lists",
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="KEY=SOURCE",
        help=f"variable whose value each node reads from {SECRETS_FORMS}; the setting secrets names those allowed",
    )


def requested_variables(options: argparse.Namespace, environ: Mapping[str, str], *, framework: str) -> dict[str, str]:
    """Return the variables of ``--env``."""
    return dict(_variable(item, environ, framework=framework) for item in options.env)


def secret_references(options: argparse.Namespace, *, framework: str) -> dict[str, str]:
    """Return where each variable of ``--secret`` is stored."""
    references: dict[str, str] = {}
    for item in options.secret:
        key, equals, reference = item.partition("=")
        if not equals or not re.fullmatch(SECRETS_PATTERN, reference, re.ASCII):
            # The user may have typed the value itself: do not print it.
            where = f" for {key}" if equals and NAME.fullmatch(key) else ""
            raise UsageError(f"--secret must be KEY=SOURCE, where SOURCE is {SECRETS_FORMS}, got another{where}")
        _check_name(key, option="--secret", framework=framework)
        if key in references or key in (_split(variable)[0] for variable in options.env):
            raise UsageError(f"--secret {key} is given twice, or as --env too")
        references[key] = reference
    if len(references) > MAX_SECRETS:
        raise UsageError(f"--secret may be given at most {MAX_SECRETS} times, got {len(references)}")
    return references


def _variable(item: str, environ: Mapping[str, str], *, framework: str) -> tuple[str, str]:
    key, value = _split(item)
    if not key:
        raise UsageError(f"--env must be KEY=VALUE or KEY, got {item!r}")
    _check_name(key, option="--env", framework=framework)
    if value is None and key not in environ:
        raise UsageError(f"--env {key} passes on a variable that is not set here")
    return key, environ[key] if value is None else value


def _split(item: str) -> tuple[str, str | None]:
    """Split KEY=VALUE or KEY:VALUE; the value of KEY alone is None."""
    match = SEPARATOR.search(item)
    return (item[: match.start()], item[match.end() :]) if match else (item, None)


def _check_name(key: str, *, option: str, framework: str) -> None:
    if not NAME.fullmatch(key):
        raise UsageError(
            f"{option} must name a variable (letters, digits and _, not starting with a digit), got {key!r}"
        )
    if key in load_framework(framework).reserved_variables:
        raise UsageError(f"{option} must not set {key}, which the launcher sets for --framework {framework}")


def check_storable(*, hostfile: str | None, variables: Sequence[str], command: Sequence[str]) -> None:
    """Raise UsageError if a durable job's line needs a value that must not be stored or that a new master lacks."""
    if hostfile is not None:
        raise UsageError(
            f"-H cannot be combined with --durable: a new master has only the cluster's hosts file, got {hostfile!r}"
        )
    for name, value in map(_split, variables):
        if value is None:
            raise UsageError(
                f"--durable cannot store --env {name}, whose value only this shell has: "
                f"give --env {name}=VALUE, {INSTEAD}"
            )
    assigned = [name for word in command for name in ASSIGNED.findall(word)]
    for name in filter(SECRET.search, [*(_split(item)[0] for item in variables), *assigned]):
        raise UsageError(f"--durable stores no secret, and {name} looks like one: rename it, {INSTEAD}")
