"""Test which port of this machine a tunnel uses."""

import socket

import pytest

from cli.errors import ClusterError
from cli.ssh.forward import LOOPBACK, free_port
from tests.ports import held_port


def test_a_port_in_use_is_not_taken_for_the_tunnel() -> None:
    with socket.socket() as foreign:
        foreign.bind((LOOPBACK, 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        with pytest.raises(
            ClusterError, match=f"port {port} of this machine is in use: choose another with --local-port"
        ):
            free_port(port)
        assert free_port(port, 0) != port


def test_the_wanted_port_is_taken_if_it_is_free() -> None:
    with held_port() as port:
        assert free_port(port) == port
