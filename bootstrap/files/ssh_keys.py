"""The cluster's own SSH key, with which jobs that run without a person reach the nodes; and the node's host key.

The private half never leaves the master that made it; every new master makes its own. An image made
of a master brings the key along, hence the instance id in its comment: another instance makes another.
"""

import shutil
from pathlib import Path

from bootstrap.atomic_file import Access, make_directory, set_access
from bootstrap.contract import CLUSTER_KEY_DIR, CLUSTER_KEY_FILE, HOST_KEY_FILE
from bootstrap.errors import HostKeyError
from bootstrap.files.node_files import Actions, place


def cluster_key(root: Path, *, instance_id: str, user: Access, maker: Actions) -> str:
    """Public half of this master's key, made when there is none; the login user owns the private half."""
    directory = place(root, CLUSTER_KEY_DIR)
    key = place(root, CLUSTER_KEY_FILE)
    public = key.with_name(f"{key.name}.pub")
    found = _words(public)
    if len(found) != 3 or found[2] != instance_id or not key.exists():
        _make(directory, name=key.name, instance_id=instance_id, user=user, maker=maker)
        found = _words(public)
    return " ".join(found[:2])


def read_host_key(root: Path) -> str:
    """The public host key without its comment, which names nothing that others can use."""
    try:
        words = place(root, HOST_KEY_FILE).read_text().split()
    except FileNotFoundError as error:
        raise HostKeyError(f"{HOST_KEY_FILE} is not there yet") from error
    if len(words) < 2 or words[0] != "ssh-ed25519":
        raise HostKeyError(f"{HOST_KEY_FILE} must hold an ssh-ed25519 key, got {' '.join(words)[:40]!r}")
    return f"{words[0]} {words[1]}"


def forget_cluster_key(root: Path) -> None:
    """On a worker: an image made of a master must not bring one."""
    directory = place(root, CLUSTER_KEY_DIR)
    for left in (directory, _fresh(directory)):
        shutil.rmtree(left, ignore_errors=True)


def _make(directory: Path, *, name: str, instance_id: str, user: Access, maker: Actions) -> None:
    """Make both halves elsewhere and move them into place in one step."""
    fresh = _fresh(directory)
    shutil.rmtree(fresh, ignore_errors=True)
    make_directory(fresh)
    maker.make_key(fresh / name, comment=instance_id)
    set_access(fresh / name, Access(mode=0o600, uid=user.uid, gid=user.gid))
    set_access(fresh / f"{name}.pub", Access(mode=0o644))
    shutil.rmtree(directory, ignore_errors=True)
    fresh.rename(directory)


def _fresh(directory: Path) -> Path:
    """Where a new key is made; a kill may leave it there."""
    return directory.with_name(f".{directory.name}.new")


def _words(public: Path) -> list[str]:
    try:
        return public.read_text().split()
    except FileNotFoundError:
        return []
