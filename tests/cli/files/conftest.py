"""Provide a home directory behind a real sshd, and a connection to it."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.ssh.master_connection import MasterConnection, SshTarget, open_connection
from tests.launcher.sshd import make_key, sshd_nodes

ADDRESS = "127.0.0.53"


@pytest.fixture(scope="module")
def remote_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home directory of the server's user."""
    return tmp_path_factory.mktemp("remote home")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory, remote_home: Path) -> Iterator[MasterConnection]:
    """Log in to a real sshd."""
    directory = tmp_path_factory.mktemp("server")
    authorized = make_key(directory / "identity")
    with sshd_nodes(directory, [ADDRESS], authorized=authorized, homes={ADDRESS: remote_home}) as [node]:
        target = SshTarget(
            address=ADDRESS,
            user=getpass.getuser(),
            host_key=node.host_key,
            identity=str(directory / "identity"),
            port=node.port,
        )
        with open_connection(target) as connected:
            yield connected
