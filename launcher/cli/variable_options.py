"""Parse ``--env``, and refuse values that a durable job must not store."""

import re
from collections.abc import Mapping, Sequence

from launcher.engines import load_engine
from launcher.errors import UsageError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Name of a variable in a shell (POSIX.1-2017, Base Definitions 3.235, Name)."""
SECRET = re.compile(r"(?:^|_)(?:SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|KEY)$", re.IGNORECASE)
"""Matches the name of a variable that is likely to have a secret."""
ASSIGNED = re.compile(r"(?:^|[\s;&|('\"`])([A-Za-z_]\w*)=")
"""Matches variables that a command sets."""
INSTEAD = "or let the job read a secret from a file or a service"


def parse_variable(item: str, environ: Mapping[str, str], *, engine: str) -> tuple[str, str]:
    """Return the name and the value that ``--env`` gives."""
    key, colon, value = item.partition(":")
    if not key or "=" in key:
        raise UsageError(f"--env must be KEY:VALUE or KEY, got {item!r}")
    if not NAME.fullmatch(key):
        raise UsageError(f"--env must name a variable of letters, digits and _, not a digit first, got {key!r}")
    if key in load_engine(engine).own_variables:
        raise UsageError(f"--env must not set {key}, which the launcher sets for --engine {engine}")
    if not colon and key not in environ:
        raise UsageError(f"--env {key} passes on a variable that is not set here")
    return key, value if colon else environ[key]


def check_storable(*, hostfile: str | None, variables: Sequence[str], command: Sequence[str]) -> None:
    """Raise UsageError if a durable job's line needs what the bucket must not have, or a new master will not have."""
    if hostfile is not None:
        raise UsageError(f"-H is not for --durable: a new master has only the cluster's hosts file, got {hostfile!r}")
    for item in variables:
        name, colon, _ = item.partition(":")
        if not colon:
            raise UsageError(f"--durable stores no value that --env {name} hides: give --env {name}:VALUE, {INSTEAD}")
    assigned = [name for word in command for name in ASSIGNED.findall(word)]
    for name in filter(SECRET.search, [*(item.partition(":")[0] for item in variables), *assigned]):
        raise UsageError(f"--durable stores no secret, and {name} looks like one: rename it, {INSTEAD}")
