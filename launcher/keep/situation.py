"""What a connection depends on at this end of it: only where nothing of it has changed may it be used again.

Ssh's files: see FILES in ssh(1). The whole environment counts, as ssh's configuration may name any variable of it,
but for what shells change by themselves.
"""

import json
import os
import socket
from _blake2 import blake2b  # hashlib itself takes long to import
from collections.abc import Mapping, Sequence

from bootstrap.contract import CLUSTER_KEY_FILE, CURRENT_RELEASE, HOSTS_FILE
from launcher.hosts import Host

NOT_COUNTED = {"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES"}
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
DIRECTORIES = ("/etc/ssh", "/etc/ssh/ssh_config.d", "~/.ssh")
"""All that is in them counts."""
LIMITS = ("/proc/self/limits", "/proc/self/cgroup")
"""The first node's processes have those of the shell that starts them."""


def situation(environ: Mapping[str, str]) -> str:
    """Name the state of everything that all connections depend on."""
    umask = os.umask(0o077)
    os.umask(umask)
    state = [
        os.path.realpath(__file__),
        os.path.realpath(CURRENT_RELEASE),
        sorted((name, value) for name, value in environ.items() if name not in NOT_COUNTED),
        [_state(path) for path in (*_files(), *(f"{place}/ssh" for place in os.get_exec_path(environ)))],
        [_text(path) for path in LIMITS],
        [umask, os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))],
        [os.getuid(), os.getgid(), sorted(os.getgroups())],
    ]
    return _name(state)


def situation_of(host: Host, command: Sequence[str], general: str, *, names: set[str]) -> str | None:
    """Name the state of what a connection to `host` by `command` depends on; None where that cannot be known at once.

    `general` is what `situation` has said, `names` what `fixed_names` has: where they lead, the former knows.
    """
    # Another name may lead elsewhere now: a question of DNS takes seconds where it fails, an alias only ssh knows.
    return _name([general, str(host), list(command)]) if host.name in names or _is_address(host.name) else None


def fixed_names(path: str = HOSTS_FILE) -> set[str]:
    """The host names that a file of this machine leads to their addresses: all of the cluster's. See hosts(5)."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return {name for line in file for name in line.partition("#")[0].split()[1:]}
    except OSError:
        return set()


def _is_address(name: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, name)
    except (OSError, ValueError):
        return False
    return True


def _name(state: object) -> str:
    return blake2b(json.dumps(state).encode("ascii"), digest_size=32).hexdigest()


def _files() -> list[str]:
    directories = [os.path.expanduser(place) for place in DIRECTORIES]
    return [*FILES, *directories, *(f"{place}/{name}" for place in directories for name in _names(place))]


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid]


def _text(path: str) -> object:
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return error.errno
