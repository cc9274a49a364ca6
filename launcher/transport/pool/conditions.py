"""Fingerprint everything on this machine that a connection depends on: it is reused only if nothing has changed.

These are ssh's files and variables; see FILES and ENVIRONMENT in ssh(1). The whole environment counts if ssh's
configuration may refer to any variable, except those that shells change by themselves.
"""

import json
import os
import pwd
import re
import socket
from _blake2 import blake2b  # importing hashlib is slow
from collections.abc import Mapping, Sequence

from bootstrap.contract import CLUSTER_KEY_FILE, CURRENT_RELEASE, HOSTS_FILE, SSH_CLIENT_CONFIG
from launcher.hosts.hostfile import Host
from launcher.transport.ssh import GIVEN_KEY_ONLY

NOT_COUNTED = {"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES"}
COUNTED = {"HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ"}
COUNTED |= {"KRB5CCNAME", "KRB5_CONFIG", "LD_LIBRARY_PATH", "LD_PRELOAD"}
NAMES_VARIABLES = re.compile(
    r"\$|^\s*(SendEnv(?!\s+LANG LC_\*\s*$)|Match\s.*exec|ProxyCommand|LocalCommand|KnownHostsCommand)", re.I | re.M
)
"""Matches configuration that may depend on any variable, except Debian's default SendEnv."""
COMMENT = re.compile(r"^\s*#.*$", re.M)
"""OpenSSH's own configuration file begins with a comment that contains dollar signs."""
SYSTEM_DIRECTORY = "/etc/ssh"
FILES = (
    CLUSTER_KEY_FILE,
    HOSTS_FILE,
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/environment",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/group",
)


def client_fingerprint(environ: Mapping[str, str], *, home: str | None = None) -> str:
    """Fingerprint what all connections depend on; `home` defaults to the account's.

    Raises KeyError for a user without an account, for whom ssh does nothing.
    """
    # ssh uses the account's home directory too, whatever HOME says.
    files = _files(home or pwd.getpwuid(os.getuid()).pw_dir)
    all_count = _names_variables(files)
    state = [
        os.path.realpath(__file__),
        os.path.realpath(CURRENT_RELEASE),
        sorted((name, value) for name, value in environ.items() if _counts(name, all_do=all_count)),
        [_state(path) for path in (*files, *(f"{place}/ssh" for place in os.get_exec_path(environ)))],
        [os.getuid(), os.getgid(), sorted(os.getgroups())],
    ]
    return _name(state)


def connection_fingerprint(
    host: Host, command: Sequence[str], general: str, *, names: set[str], agent: str | None
) -> str | None:
    """Fingerprint what the connection to `host` by `command` depends on; None if that cannot be known at once.

    `general` comes from `client_fingerprint`, which covers the names in `names`, from `fixed_names`. `agent` is
    where the user's SSH agent listens.
    """
    # Any other name may lead elsewhere by now. A failing DNS query takes seconds, and only ssh knows its aliases.
    if not (host.name in names or _is_address(host.name)):
        return None
    # With the cluster's own key all of a user's sessions log in alike; another agent may be another person.
    who = None if GIVEN_KEY_ONLY in command else agent
    return _name([general, str(host), list(command), who])


def fixed_names(path: str = HOSTS_FILE) -> set[str]:
    """Return the host names that a file of this machine resolves, all of the cluster's among them; see hosts(5)."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return {name for line in file for name in line.partition("#")[0].split()[1:]}
    except OSError:
        return set()


def _counts(name: str, *, all_do: bool) -> bool:
    return name not in NOT_COUNTED if all_do else name in COUNTED or name.startswith("LC_")


def _names_variables(files: Sequence[str]) -> bool:
    """Return whether ssh's configuration may refer to any variable or runs a command that may.

    The cluster's own configuration runs test(1), which does not.
    """
    others = (path for path in files if path != SSH_CLIENT_CONFIG and "sshd_config" not in path)
    texts = (COMMENT.sub("", _text(path)) for path in others if "ssh" in path and "config" in path)
    return any(map(NAMES_VARIABLES.search, texts))


def _is_address(name: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, name)
    except (OSError, ValueError):
        return False
    return True


def _name(state: object) -> str:
    return blake2b(json.dumps(state).encode("ascii"), digest_size=32).hexdigest()


def _files(home: str) -> list[str]:
    found = list(FILES)
    for directory in (SYSTEM_DIRECTORY, f"{home}/.ssh"):
        for place, below, names in os.walk(directory):
            below.sort()
            found += [place, *(f"{place}/{name}" for name in sorted(names))]
    return found


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
