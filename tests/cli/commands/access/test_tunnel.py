"""Test which port of this machine a tunnel uses, and that it leads to a program."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bootstrap.contract import NodeType
from cli.aws.nodes import ClusterNode
from cli.commands.access import tunnel
from cli.commands.access.tunnel import PROBE, check_port
from cli.errors import ClusterError
from cli.ssh.forward import LOOPBACK, free_port
from tests.ports import held_port


def test_port_in_use_is_not_taken_for_the_tunnel() -> None:
    with socket.socket() as foreign:
        foreign.bind((LOOPBACK, 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        with pytest.raises(
            ClusterError, match=f"port {port} of this machine is in use: choose another with --local-port"
        ):
            free_port(port)
        assert free_port(port, 0) != port


def test_wanted_port_is_taken_if_it_is_free() -> None:
    with held_port() as port:
        assert free_port(port) == port


def member(node_type: NodeType) -> ClusterNode:
    return ClusterNode(node_index=2, instance_id="i-1", address="10.0.0.1", node_type=node_type, host_key="")


@contextmanager
def probing(port: int) -> "Iterator[subprocess.Popen[bytes]]":
    """Run the node's part of the tunnel here."""
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", PROBE, str(port)], stdin=pipe, stdout=pipe) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_port_on_which_a_program_listens_gets_its_tunnel() -> None:
    with socket.socket() as program:
        program.bind((LOOPBACK, 0))
        program.listen()
        port = program.getsockname()[1]
        with probing(port) as process:
            check_port(process, member("worker"), port)
            assert process.poll() is None


@pytest.mark.parametrize(
    ("node_type", "named", "command"),
    [
        ("worker", 0, ""),
        ("worker", 6006, ""),
        ("master", 6006, "; dlcluster tensorboard starts TensorBoard there itself"),
        ("master", 8888, "; dlcluster jupyter starts JupyterLab there itself"),
    ],
)
def test_port_on_which_nothing_listens_is_reported_with_advice(node_type: NodeType, named: int, command: str) -> None:
    name = "master" if node_type == "master" else "worker2"
    advice = f"start the program first (dlcluster ssh {name}), then the tunnel{command}"
    with held_port() as port, probing(port) as process, pytest.raises(ClusterError) as failure:
        check_port(process, member(node_type), named or port)
    assert str(failure.value) == f"nothing listens on localhost:{named or port} of {name}: {advice}"


def test_probes_line_counts_after_other_output() -> None:
    script = "printf welcome; sleep 0.1; echo nothing listens; exec cat"
    with (
        subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        pytest.raises(ClusterError, match="nothing listens on localhost:8080"),
    ):
        check_port(process, member("worker"), 8080)


def test_probe_without_an_answer_delays_the_tunnel_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "PROBE_TIMEOUT_S", 0.2)
    script = "printf welcome; exec cat"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        check_port(process, member("worker"), 8080)


def test_node_that_prints_something_else_gets_its_tunnel() -> None:
    with subprocess.Popen(["echo", "welcome"], stdout=subprocess.PIPE) as process:
        check_port(process, member("worker"), 8080)
