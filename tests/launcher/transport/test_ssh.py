"""Test which key gives a job access to a node."""

import shlex
import subprocess
from pathlib import Path

import pytest

from launcher.hosts.hostfile import Host
from launcher.transport import ssh


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "id_ed25519"
    file.write_text("key")
    monkeypatch.setattr(ssh, "CLUSTER_KEY_FILE", str(file))
    return file


def test_ssh_between_nodes_uses_the_clusters_key_and_no_agent(key: Path) -> None:
    command = ssh.ssh_command(Host(name="deeplearning-worker2"))
    assert f"IdentityFile={key}" in command
    assert "IdentitiesOnly=yes" in command


def test_ssh_to_other_hosts_uses_the_users_keys(key: Path) -> None:
    assert key.exists()
    assert not any("Identit" in word for word in ssh.ssh_command(Host(name="gpu-box")))


def test_ssh_uses_the_agent_without_a_readable_cluster_key(key: Path) -> None:
    key.unlink()
    assert not any("Identit" in word for word in ssh.ssh_command(Host(name="deeplearning-worker2")))


@pytest.mark.parametrize("host", ["deeplearning-worker2", "gpu-box"])
def test_host_keys_are_checked_with_any_key(key: Path, host: str) -> None:
    assert key.exists()
    assert "StrictHostKeyChecking=yes" in ssh.ssh_command(Host(name=host))


def test_ssh_gets_the_port_of_the_hosts_file() -> None:
    assert "Port=2222" in ssh.ssh_command(Host(name="gpu-box", port=2222))
    assert not any("Port" in word for word in ssh.ssh_command(Host(name="gpu-box")))


def key_exchanges(*options: str) -> list[str]:
    """Return the algorithms that ssh would propose, in order."""
    asked = ["ssh", "-F", "none", "-G", *options, "node"]
    output = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30).stdout
    (line,) = (line for line in output.splitlines() if line.startswith("kexalgorithms "))
    return line.partition(" ")[2].split(",")


def test_ssh_between_nodes_disables_the_slow_key_exchanges(key: Path) -> None:
    assert key.exists()
    command = ssh.client_command(Host(name="deeplearning-worker2"))
    fast = [one for one in key_exchanges() if not one.startswith(("sntrup761", "curve25519"))]
    assert fast
    assert key_exchanges(*command[command.index("-o") :]) == fast


def test_ssh_to_other_hosts_keeps_opensshs_key_exchanges() -> None:
    command = ssh.client_command(Host(name="gpu-box"))
    assert key_exchanges(*command[command.index("-o") :]) == key_exchanges()


@pytest.mark.parametrize("host", ["deeplearning-worker2", "gpu-box"])
def test_open_mpi_can_split_the_ssh_command_at_blanks(key: Path, host: str) -> None:
    command = ssh.client_command(Host(name=host))
    assert shlex.join(command) == " ".join(command)
