"""Make the cluster's SSH key, with which unattended jobs reach the nodes; read the node's host key.

The private half never leaves the master that made it; every new master makes its own. An image made from a master
contains the key, so the key's comment names the instance, and another instance replaces the key.
"""

import shutil
from pathlib import Path

from bootstrap.atomic_file import Permissions, make_directory, set_permissions
from bootstrap.contract import CLUSTER_KEY_DIR, CLUSTER_KEY_FILE, HOST_KEY_FILE
from bootstrap.errors import HostKeyError
from bootstrap.files.node_files import AgentSystem
from bootstrap.files.paths import under_root


def ensure_cluster_key(root: Path, *, instance_id: str, user: Permissions, system: AgentSystem) -> str:
    """Return the public half of this master's key, which is made if missing; the login user owns the private half."""
    directory = under_root(root, CLUSTER_KEY_DIR)
    key = under_root(root, CLUSTER_KEY_FILE)
    public = key.with_name(f"{key.name}.pub")
    fields = _fields(public)
    if len(fields) != 3 or fields[2] != instance_id or not key.exists():
        _make(directory, name=key.name, instance_id=instance_id, user=user, system=system)
        fields = _fields(public)
    return " ".join(fields[:2])


def read_host_key(root: Path) -> str:
    """Return the public host key without its comment. Raises HostKeyError."""
    try:
        fields = under_root(root, HOST_KEY_FILE).read_text().split()
    except FileNotFoundError as error:
        raise HostKeyError(f"{HOST_KEY_FILE} must exist, found none yet") from error
    if len(fields) < 2 or fields[0] != "ssh-ed25519":
        raise HostKeyError(f"{HOST_KEY_FILE} must hold an ssh-ed25519 key, got {' '.join(fields)[:40]!r}")
    return f"{fields[0]} {fields[1]}"


def delete_cluster_key(root: Path) -> None:
    """Delete the cluster's key from a worker, whose image may have been made from a master."""
    directory = under_root(root, CLUSTER_KEY_DIR)
    for left in (directory, _fresh(directory)):
        shutil.rmtree(left, ignore_errors=True)


def _make(directory: Path, *, name: str, instance_id: str, user: Permissions, system: AgentSystem) -> None:
    """Make both halves in a temporary directory and rename it into place."""
    fresh = _fresh(directory)
    shutil.rmtree(fresh, ignore_errors=True)
    make_directory(fresh)
    system.make_key(fresh / name, comment=instance_id)
    set_permissions(fresh / name, Permissions(mode=0o600, uid=user.uid, gid=user.gid))
    set_permissions(fresh / f"{name}.pub", Permissions(mode=0o644))
    shutil.rmtree(directory, ignore_errors=True)
    fresh.rename(directory)


def _fresh(directory: Path) -> Path:
    """Return an empty temporary directory for a new key; a killed agent may have left one."""
    return directory.with_name(f".{directory.name}.new")


def _fields(public: Path) -> list[str]:
    try:
        return public.read_text().split()
    except FileNotFoundError:
        return []
