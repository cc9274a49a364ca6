"""Test the parts of the runner that a job on loopback does not show."""

import dataclasses
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.errors import LaunchError
from launcher.runner.inbox import parse_spec
from launcher.runner.port import claim_port
from launcher.runner.process.environment import check_interfaces, process_environment, working_directory
from launcher.runner.route import interface_to
from launcher.spec import NodeSpec, ProcessSpec

RANK = ProcessSpec(name="rank 1", label="1", command=("python", "x"), environment={"RANK": "1"})
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
SPEC = NodeSpec(
    job_id="j",
    host="n",
    processes=(RANK,),
    cwd="/",
    environment={"USER_SET": "1"},
    defaults={"OMP_NUM_THREADS": "1", "KEPT": "d"},
    interface_variables=INTERFACES,
    peer="10.0.0.1",
)


PYTHONS_OWN = {"abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "stat", "struct", "zipimport"}
"""Modules of the library that Python itself has already imported, or that import instantly."""
IN_C = {"errno", "fcntl", "gc", "marshal", "posix", "select", "time"}
RUNNER = Path(__file__).parents[3] / "launcher/runner/__main__.py"


def with_python(directory: Path) -> NodeSpec:
    """Return a spec for nodes whose Python is in a directory."""
    return dataclasses.replace(SPEC, path_prefix=[str(directory)])


def test_runner_imports_no_slow_module(tmp_path: Path) -> None:
    # The runner starts on every node of every job; importing json alone takes as long as starting Python.
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(RUNNER)]
    spec = dataclasses.replace(SPEC, processes=(), peer="127.0.0.1").to_line()
    ended = subprocess.run(
        command, input=spec, env={"HOME": str(tmp_path)}, capture_output=True, timeout=60, check=True
    )
    output = ended.stderr.decode()
    imported = {line.rpartition("|")[2].strip() for line in output.splitlines() if line.startswith("import time:")}
    assert "launcher.runner.process.supervisor" in imported
    others = {name for name in imported if name.partition(".")[0] not in {"launcher", *PYTHONS_OWN}}
    assert {name for name in others if name in sys.stdlib_module_names and name[0] != "_"} <= IN_C


def routed_interface(address: str) -> str | None:
    """Return the interface that iproute2 names."""
    found = subprocess.run(["ip", "-4", "route", "get", address], capture_output=True, text=True, timeout=10)
    words = found.stdout.split()
    return words[words.index("dev") + 1] if found.returncode == 0 else None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "198.51.100.7", "10.1.2.3"])
def test_interface_is_the_one_on_the_kernels_route(address: str) -> None:
    assert interface_to(address) == routed_interface(address)


def test_peer_without_a_route_has_no_interface() -> None:
    assert interface_to("240.0.0.1") == routed_interface("240.0.0.1")


def test_spec_is_parsed_as_it_was_written() -> None:
    process = ProcessSpec(name="n", label="l", command=("\udcff\n", "ü"), environment={}, is_required=False)
    odd = NodeSpec(job_id="j", host="n", processes=(process, RANK), cwd="/a b", environment={"K": ""}, peer="::")
    for spec in (SPEC, odd):
        read = parse_spec(spec.to_line())
        assert {**vars(read), "processes": [vars(one) for one in read.processes]} == json.loads(spec.to_line())
    assert [*read.processes[0].command] == ["\udcff\n", "ü"]
    assert odd.to_line().count(b"\n") == 1


def test_process_overrides_the_jobs_and_the_nodes_variables(tmp_path: Path) -> None:
    base = {"PATH": "/bin", "RANK": "9", "USER_SET": "0", "GLOO_SOCKET_IFNAME": "docker0", "KEPT": "k"}
    environment = process_environment(with_python(tmp_path), RANK, base=base, cwd="/work", interface="ens5")
    assert environment == {
        "PATH": f"{tmp_path}:/bin",
        "RANK": "1",
        "USER_SET": "1",
        "KEPT": "k",
        "GLOO_SOCKET_IFNAME": "ens5",
        "NCCL_SOCKET_IFNAME": "ens5",
        "OMP_NUM_THREADS": "1",
        "PWD": "/work",
    }


def test_node_without_pytorch_keeps_its_path(tmp_path: Path) -> None:
    environment = process_environment(
        with_python(tmp_path / "no"), RANK, base={"PATH": "/bin"}, cwd="/", interface=None
    )
    assert environment["PATH"] == "/bin"
    assert "GLOO_SOCKET_IFNAME" not in environment


def test_ranks_fall_back_to_the_home_directory(tmp_path: Path) -> None:
    assert working_directory(str(tmp_path), home="/home/u") == (str(tmp_path), False)
    assert working_directory(str(tmp_path / "gone"), home="/home/u") == ("/home/u", True)


def test_rank_cannot_reach_the_users_ssh_agent() -> None:
    base = {"PATH": "/bin", "SSH_AUTH_SOCK": "/run/agent"}
    assert "SSH_AUTH_SOCK" not in process_environment(SPEC, RANK, base=base, cwd="/", interface=None)


@pytest.mark.parametrize("value", ["", "ens5", "ens", "^docker0,lo", "=ens5", "eth0,ens5"])
def test_interface_lists_and_prefixes_of_nccl_are_accepted(value: str) -> None:
    check_interfaces({"NCCL_SOCKET_IFNAME": value}, INTERFACES, routed="eth9", present=lambda: ["lo", "ens5"])


def test_interface_of_the_route_is_not_looked_up() -> None:
    check_interfaces({"NCCL_SOCKET_IFNAME": "ens5"}, INTERFACES, routed="ens5", present=lambda: pytest.fail("asked"))


def test_missing_network_interface_is_reported() -> None:
    with pytest.raises(LaunchError) as caught:
        check_interfaces({"GLOO_SOCKET_IFNAME": "eth0"}, INTERFACES, routed="ens5", present=lambda: ["lo", "ens5"])
    assert str(caught.value) == "GLOO_SOCKET_IFNAME must name an interface of lo, ens5, got 'eth0'"


def test_port_is_claimed_even_if_outgoing_connections_may_use_all(tmp_path: Path) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("1024\t65535\n")
    claim = claim_port(str(given))
    claim.close()
    assert claim.port >= 1024


def test_two_launches_never_get_one_port(tmp_path: Path) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("1027\t65535\n")  # leaves three ports, which are tried first
    claims = [claim_port(str(given)) for _ in range(8)]
    assert len({claim.port for claim in claims}) == 8
    for claim in claims:
        with socket.socket() as rank:
            rank.bind(("", claim.port))  # without SO_REUSEADDR, as a rank may bind
        claim.close()
