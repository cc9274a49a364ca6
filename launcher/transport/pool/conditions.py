"""What a connection depends on at this end of it: only where nothing of it has changed may it be used again.

Ssh's files and variables: see FILES and ENVIRONMENT in ssh(1). The whole environment counts where ssh's configuration
may name any variable of it, but for what shells change by themselves.
"""

import json
import os
import pwd
import re
import socket
from _blake2 import blake2b  # hashlib itself takes long to import
from collections.abc import Mapping, Sequence

from bootstrap.contract import CLUSTER_KEY_FILE, CURRENT_RELEASE, HOSTS_FILE, SSH_CLIENT_CONFIG
from launcher.hosts.hostfile import Host
from launcher.transport.ssh import GIVEN_KEY_ONLY

NOT_COUNTED = {"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES"}
COUNTED = {"HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ"}
COUNTED |= {"KRB5CCNAME", "KRB5_CONFIG", "LD_LIBRARY_PATH", "LD_PRELOAD"}
AGENT_VARIABLE = "SSH_AUTH_SOCK"
NAMES_VARIABLES = re.compile(
    r"\$|^\s*(SendEnv(?!\s+LANG LC_\*\s*$)|Match\s.*exec|ProxyCommand|LocalCommand|KnownHostsCommand)", re.I | re.M
)
"""In ssh's configuration. The exception is in the one that Debian and Ubuntu install."""
COMMENT = re.compile(r"^\s*#.*$", re.M)
"""OpenSSH's own file begins with one that has dollar signs."""
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


def login_fingerprint(environ: Mapping[str, str], *, home: str | None = None) -> str:
    """Name the state of everything that all connections depend on; `home` is the account's unless it is given.

    Raises KeyError for a user without an account, for whom ssh does nothing.
    """
    # Ssh takes the account's too, whatever HOME says.
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
    """Name the state of what a connection to `host` by `command` depends on; None where that cannot be known at once.

    `general` is what `login_fingerprint` has said, `names` what `fixed_names` has: where they lead, the former knows. `agent`
    is where the user's SSH agent listens.
    """
    # Another name may lead elsewhere now: a question of DNS takes seconds where it fails, an alias only ssh knows.
    if not (host.name in names or _is_address(host.name)):
        return None
    # With the cluster's own key all of the user's sessions log in alike; another agent may be another person.
    who = None if GIVEN_KEY_ONLY in command else agent
    return _name([general, str(host), list(command), who])


def fixed_names(path: str = HOSTS_FILE) -> set[str]:
    """The host names that a file of this machine leads to their addresses: all of the cluster's. See hosts(5)."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return {name for line in file for name in line.partition("#")[0].split()[1:]}
    except OSError:
        return set()


def _counts(name: str, *, all_do: bool) -> bool:
    return name not in NOT_COUNTED if all_do else name in COUNTED or name.startswith("LC_")


def _names_variables(files: Sequence[str]) -> bool:
    """Whether ssh's configuration may look at any variable, or run what does.

    The cluster's own runs test(1), which looks at none.
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
