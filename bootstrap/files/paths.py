"""Turn absolute paths of the contract into paths below a root directory, which is ``/`` on a node."""

from pathlib import Path

from bootstrap.contract import NODE_STATE_FILE


def under_root(root: Path, path: str) -> Path:
    """Return the path below ``root`` for an absolute path of the contract; tests use a root other than ``/``."""
    return root / path.lstrip("/")


def run_file(root: Path, name: str) -> Path:
    """Return a file beside the node's state, in a directory that a reboot empties."""
    return under_root(root, NODE_STATE_FILE).with_name(name)


def pending_file(root: Path, action: str) -> Path:
    """Return the file that exists while an action remains to be done; see ``atomic_file.write_and_act``."""
    return run_file(root, f"{action}.pending")
