"""Provide three nodes with a home directory each, the second and third behind real sshd processes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import ADDRESSES
from tests.launcher.sshd import client_config, make_key, sshd_nodes
from tests.launcher.sync.cluster_with_homes import ClusterWithHomes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterWithHomes]:
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
        cluster = ClusterWithHomes(directory=tmp_path, environment=environment, homes=homes, source=tmp_path / "source")
        ssh = cluster.write_program("ssh", f'exec /usr/bin/ssh -F {config} "$@"')
        environment["PATH"] = f"{ssh.parent}:{environment['PATH']}"
        yield cluster
        assert cluster.ranks() == []
