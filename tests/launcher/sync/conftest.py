"""Provide three nodes with a home directory each, the second and third behind real sshd processes."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.launcher.conftest import ADDRESSES, Cluster
from tests.launcher.sshd import client_config, make_key, sshd_nodes


@dataclass(frozen=True, kw_only=True)
class Site(Cluster):
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
    """Read a directory: text of files, targets of links, None for directories."""
    return {str(path.relative_to(directory)): _content(path) for path in sorted(directory.rglob("*"))}


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "" if path.is_dir() else path.read_text()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    directory, homes = tmp_path / "nodes", {address: tmp_path / f"home-{address}" for address in ADDRESSES}
    for path in (directory, tmp_path / "source", *homes.values()):
        path.mkdir()
    authorized = make_key(directory / "identity")
    with sshd_nodes(directory, ADDRESSES[1:], authorized=authorized, homes=homes) as running:
        port = running[0].port
        known = directory / "known_hosts"
        known.write_text("".join(f"[{node.address}]:{port} {node.host_key}\n" for node in running))
        config = directory / "ssh_config"
        client_config(config, port=port, identity=directory / "identity", known_hosts=known)
        environment = {"HOME": str(homes[ADDRESSES[0]]), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        environment["XDG_RUNTIME_DIR"] = str(tmp_path / "none")
        site = Site(directory=tmp_path, environment=environment, homes=homes, source=tmp_path / "source")
        ssh = site.program("ssh", f'exec /usr/bin/ssh -F {config} "$@"')
        environment["PATH"] = f"{ssh.parent}:{environment['PATH']}"
        yield site
        assert site.ranks() == []
