"""Start the sshd processes of a cluster and the user's SSH agent."""

import getpass
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.moto_cluster import Deploy
from tests.cli.ssh.sshd_cluster import MASTER, WORKER, SshdCluster
from tests.launcher.sshd import Node, make_key, sshd_nodes


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, list[Node]]]:
    directory = tmp_path_factory.mktemp("cli nodes")
    authorized = make_key(directory / "identity")
    with sshd_nodes(directory, [MASTER, WORKER], authorized=authorized) as nodes:
        yield directory, nodes[0].port, nodes


@pytest.fixture
def agent(servers: tuple[Path, int, list[Node]], tmp_path: Path) -> Iterator[Path]:
    """Start the test's own SSH agent, with the user's key."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    environment = {"SSH_AUTH_SOCK": str(socket), "PATH": os.defpath}
    subprocess.run(
        ["ssh-add", "-q", servers[0] / "identity"], env=environment, check=True, timeout=60, stdin=subprocess.DEVNULL
    )
    yield socket
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def sshd_cluster(
    servers: tuple[Path, int, list[Node]], agent: Path, aws: dict[str, str], deploy: Deploy, tmp_path: Path
) -> SshdCluster:
    directory, port, nodes = servers
    moto_cluster = deploy(
        user=getpass.getuser(),
        public=MASTER,
        private=["10.0.0.10", WORKER],
        host_keys=[node.host_key for node in nodes],
    )
    # On AWS, the port is 22; the user's configuration is the place for deviations.
    (tmp_path / "ssh_config").write_text(f"Host *\n  Port {port}\n  BatchMode yes\n")
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {tmp_path}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    environment = aws | {"PATH": f"{wrapper.parent}:{os.defpath}", "SSH_AUTH_SOCK": str(agent)}
    return SshdCluster(
        moto_cluster=moto_cluster,
        identity=directory / "identity",
        port=port,
        nodes=tuple(nodes),
        environment=environment,
    )
