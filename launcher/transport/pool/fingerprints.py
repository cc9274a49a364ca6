"""Fingerprint everything on this machine that a connection depends on; it is reused only if nothing has changed.

This covers ssh's files and variables; see FILES and ENVIRONMENT in ssh(1). If ssh's configuration may refer to any
variable, the complete environment counts, except variables that shells change automatically.
"""

import json
import os
import pwd
import re
import socket
from _blake2 import blake2b  # importing hashlib is slow
from collections.abc import Mapping, Sequence

from bootstrap.contract import CLUSTER_KEY_FILE, CURRENT_RELEASE_LINK, HOSTS_FILE, SSH_CLIENT_CONFIG_FILE
from launcher.hosts.hostfile import Host
from launcher.transport.ssh import GIVEN_KEY_ONLY

IGNORED_VARIABLES = {"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES"}
USED_VARIABLES = {"HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ"}
USED_VARIABLES |= {"KRB5CCNAME", "KRB5_CONFIG", "LD_LIBRARY_PATH", "LD_PRELOAD"}
VARIABLE_USE = re.compile(
    r"\$|^\s*(SendEnv(?!\s+LANG LC_\*\s*$)|Match\s.*exec|ProxyCommand|LocalCommand|KnownHostsCommand)", re.I | re.M
)
"""Matches configuration that may depend on any variable, except Debian's default SendEnv."""
COMMENT = re.compile(r"^\s*#.*$", re.M)
"""Matches a comment; OpenSSH's own configuration file begins with one that contains dollar signs."""
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
    # Like ssh, use the account's home directory, whatever HOME is.
    files = _files(home or pwd.getpwuid(os.getuid()).pw_dir)
    any_variable = _may_use_any_variable(files)
    state = [
        os.path.realpath(__file__),
        os.path.realpath(CURRENT_RELEASE_LINK),
        sorted((name, value) for name, value in environ.items() if _affects_ssh(name, any_variable=any_variable)),
        [_stat_key(path) for path in (*files, *(f"{directory}/ssh" for directory in os.get_exec_path(environ)))],
        [os.getuid(), os.getgid(), sorted(os.getgroups())],
    ]
    return _digest(state)


def connection_fingerprint(
    host: Host, command: Sequence[str], client: str, *, local_names: set[str], agent: str | None
) -> str | None:
    """Fingerprint what the connection to `host` by `command` depends on; None if finding out would take too long.

    `client` is the result of `client_fingerprint`, which also covers the names in `local_names`, the result of
    `local_host_names`. `agent` is the socket of the user's SSH agent.
    """
    # Any other name may resolve differently by now. A failing DNS query takes seconds, and only ssh knows its aliases.
    if not (host.name in local_names or _is_address(host.name)):
        return None
    # With the cluster's key, all sessions of a user are equal; another agent may belong to another person.
    login = None if GIVEN_KEY_ONLY in command else agent
    return _digest([client, str(host), list(command), login])


def local_host_names(path: str = HOSTS_FILE) -> set[str]:
    """Return the host names that a file of this machine resolves, including all of the cluster; see hosts(5)."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return {name for line in file for name in line.partition("#")[0].split()[1:]}
    except OSError:
        return set()


def _affects_ssh(name: str, *, any_variable: bool) -> bool:
    return name not in IGNORED_VARIABLES if any_variable else name in USED_VARIABLES or name.startswith("LC_")


def _may_use_any_variable(files: Sequence[str]) -> bool:
    """Return True if ssh's configuration may refer to any variable or runs a command that may.

    The cluster's own configuration runs test(1), which does not.
    """
    others = (path for path in files if path != SSH_CLIENT_CONFIG_FILE and "sshd_config" not in path)
    texts = (COMMENT.sub("", _text(path)) for path in others if "ssh" in path and "config" in path)
    return any(map(VARIABLE_USE.search, texts))


def _is_address(name: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, name)
    except (OSError, ValueError):
        return False
    return True


def _digest(state: object) -> str:
    return blake2b(json.dumps(state).encode("ascii"), digest_size=32).hexdigest()


def _files(home: str) -> list[str]:
    paths = list(FILES)
    for directory in (SYSTEM_DIRECTORY, f"{home}/.ssh"):
        for parent, below, names in os.walk(directory):
            below.sort()
            paths += [parent, *(f"{parent}/{name}" for name in sorted(names))]
    return paths


def _stat_key(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode, status.st_uid]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
