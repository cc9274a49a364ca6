"""Describe three nodes with a home directory each, and what lies in them."""

from dataclasses import dataclass
from pathlib import Path

from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster


@dataclass(frozen=True, kw_only=True)
class ClusterWithHomes(LoopbackCluster):
    """The nodes, their home directories, and the user's working directory."""

    homes: dict[str, Path]
    source: Path

    @property
    def far(self) -> list[Path]:
        """Home directories of the nodes behind sshd."""
        return [self.homes[address] for address in ADDRESSES[1:]]

    def write(self, name: str, content: str = "", *, mode: int = 0o644) -> Path:
        """Write a file in the source directory."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)
        return path


def tree(directory: Path) -> dict[str, str]:
    """Read a directory: text of files, targets of links, and an empty string for directories."""
    return {str(path.relative_to(directory)): _content(path) for path in sorted(directory.rglob("*"))}


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "" if path.is_dir() else path.read_text()
