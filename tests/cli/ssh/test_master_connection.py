"""Test the paramiko connection to the master: output, exit code, agent, host key, deadline."""

import getpass
import shlex
import threading
from pathlib import Path

import pytest
from paramiko.agent import AgentRemoteProxy

from cli.errors import ClusterError
from cli.ssh.master_connection import SshTarget, open_connection, run_command
from tests.cli.moto_cluster import set_addresses
from tests.cli.ssh.sshd_cluster import MASTER, SshdCluster
from tests.launcher.sshd import make_key

NOWHERE = "255.255.255.255"


def test_run_streams_both_outputs_and_returns_the_exit_code(
    sshd_cluster: SshdCluster, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = "head -c 3000000 /dev/zero; echo err >&2; exit 9"
    assert run_command(sshd_cluster.target(), command, stdout_fd=1, stderr_fd=2) == 9
    out, err = capfdbinary.readouterr()
    assert (out, err) == (bytes(3000000), b"err\n")


def test_run_forwards_the_agent(
    sshd_cluster: SshdCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", sshd_cluster.environment["SSH_AUTH_SOCK"])
    assert run_command(sshd_cluster.target(), "ssh-add -l", stdout_fd=1, stderr_fd=2) == 0
    assert "(ED25519)" in capfd.readouterr().out


def test_run_ends_the_agents_threads_before_the_connection(
    sshd_cluster: SshdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", sshd_cluster.environment["SSH_AUTH_SOCK"])
    left_open = """
import os, socket, time
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["SSH_AUTH_SOCK"])
if not os.fork():
    os.closerange(0, 3)
    time.sleep(3)
"""
    with open_connection(sshd_cluster.target()) as master:
        assert master.stream(f"python3 -c {shlex.quote(left_open)}", stdout_fd=1, stderr_fd=2, forward_agent=True) == 0
        assert [thread for thread in threading.enumerate() if isinstance(thread, AgentRemoteProxy)] == []


def test_run_fails_when_the_host_key_is_not_the_tables(sshd_cluster: SshdCluster) -> None:
    with pytest.raises(ClusterError) as caught:
        run_command(sshd_cluster.target(host_key=sshd_cluster.nodes[1].host_key), "true", stdout_fd=1, stderr_fd=2)
    assert str(caught.value) == f"refused to log in to {MASTER}: its host key is not the one in the cluster's table"


def test_run_fails_when_the_key_is_not_accepted(sshd_cluster: SshdCluster, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    target = SshTarget(
        address=MASTER, user=getpass.getuser(), host_key=sshd_cluster.nodes[0].host_key,
        identity=str(tmp_path / "other"), port=sshd_cluster.port,
    )  # fmt: skip
    with pytest.raises(ClusterError, match=r"cannot log in to .*: Authentication failed"):
        run_command(target, "true", stdout_fd=1, stderr_fd=2)


def test_run_fails_without_an_ssh_server(sshd_cluster: SshdCluster) -> None:
    # Linux refuses the broadcast address at once, whatever listens on this machine's port 22.
    set_addresses(sshd_cluster.moto_cluster.instance_ids[0], private="10.0.0.10", public=NOWHERE)
    done = sshd_cluster.dlcluster("run", "-i", str(sshd_cluster.identity), "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"dlcluster: cannot log in to {getpass.getuser()}@{NOWHERE}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.timeout(60)
def test_command_that_does_not_end_is_reported_at_its_deadline(sshd_cluster: SshdCluster) -> None:
    with open_connection(sshd_cluster.target()) as master:
        with pytest.raises(ClusterError, match=f"waited 1 s for a command on {MASTER}, which did not end"):
            master.output("echo begun; sleep 30", timeout_s=0.6)
        assert master.output("echo still there", timeout_s=30).stdout == b"still there\n"
