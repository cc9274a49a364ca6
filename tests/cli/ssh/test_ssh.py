"""Test logins through real sshd processes: a master, and a worker that only the master's sshd reaches."""

import getpass
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from paramiko.agent import AgentRemoteProxy

from bootstrap.contract import NodeType
from cli.aws.nodes import ClusterNode
from cli.errors import ClusterError
from cli.ssh.config import LoginSettings, known_hosts_text, ssh_arguments
from cli.ssh.master_connection import SshTarget, open_connection, run_command
from tests.cli.fleet import Deploy, Fleet, put_membership, set_addresses
from tests.launcher.sshd import Node, make_key, sshd_nodes

PROGRAM = Path(__file__).parents[3] / "bin" / "dlcluster"
MASTER, WORKER = "127.0.0.51", "127.0.0.52"
NOWHERE = "255.255.255.255"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Two nodes, a user with a key and an agent, and AWS's view of them."""

    fleet: Fleet
    identity: Path
    port: int
    nodes: tuple[Node, ...]
    environment: dict[str, str]

    def dlcluster(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, PROGRAM, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def target(self, *, host_key: str | None = None) -> SshTarget:
        return SshTarget(
            address=MASTER,
            user=getpass.getuser(),
            host_key=host_key or self.nodes[0].host_key,
            identity=str(self.identity),
            port=self.port,
        )


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
def site(
    servers: tuple[Path, int, list[Node]], agent: Path, aws: dict[str, str], deploy: Deploy, tmp_path: Path
) -> Site:
    directory, port, nodes = servers
    fleet = deploy(
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
    return Site(
        fleet=fleet,
        identity=directory / "identity",
        port=port,
        nodes=tuple(nodes),
        environment=environment,
    )


def swap_keys(site: Site) -> None:
    """Swap the nodes' keys in the table."""
    put_membership(
        site.fleet.table,
        site.fleet.instance_ids,
        private=["10.0.0.10", WORKER],
        host_keys=[node.host_key for node in reversed(site.nodes)],
    )


SHOW = 'echo "$SSH_CONNECTION" | cut -d" " -f3; ssh-add -l | grep -c ED25519'


def test_ssh_logs_in_to_the_master_with_the_agent(site: Site) -> None:
    done = site.dlcluster("ssh", "--", SHOW)
    assert (done.returncode, done.stdout) == (0, f"{MASTER}\n1\n"), done.stderr


@pytest.mark.parametrize("name", ["worker2", "2", "deeplearning-worker2"])
def test_ssh_reaches_a_worker_through_the_master(site: Site, name: str) -> None:
    done = site.dlcluster("ssh", name, "--", SHOW + '; echo "$SSH_CONNECTION" | cut -d" " -f1')
    assert done.returncode == 0, done.stderr
    address, keys, _ = done.stdout.splitlines()
    assert (address, keys) == (WORKER, "0"), "the agent goes to the master and no further"


def test_agent_is_not_forwarded_to_workers() -> None:
    """The hop through the master does not forward the agent either."""
    master = ClusterNode(node_index=1, instance_id="", address=MASTER, node_type="master", host_key="")
    worker = ClusterNode(node_index=2, instance_id="", address=WORKER, node_type="worker", host_key="")
    access = LoginSettings(
        cluster_name="demo", login_user="ubuntu", master=master, master_address=MASTER, known_hosts_command=("true",)
    )
    words = " ".join(ssh_arguments(access, worker))
    assert (words.count("ForwardAgent=no"), words.count("ForwardAgent=yes")) == (2, 0)
    assert ssh_arguments(access, master).count("ForwardAgent=yes") == 1


def test_ssh_keeps_arguments_and_the_exit_code(site: Site) -> None:
    done = site.dlcluster("ssh", "--", "sh", "-c", 'printf "%s|" "$@"; exit 7', "x", "a b", "$HOME", "it's")
    assert (done.returncode, done.stdout) == (7, "a b|$HOME|it's|")


@pytest.mark.parametrize("node", ["master", "worker2"])
def test_host_key_that_is_not_the_tables_is_refused(site: Site, node: str) -> None:
    swap_keys(site)
    done = site.dlcluster("ssh", node, "--", "echo in")
    assert done.returncode == 255
    assert done.stdout == ""
    assert "Host key verification failed." in done.stderr


def test_worker_with_a_wrong_key_is_refused(site: Site) -> None:
    master = site.nodes[0]
    put_membership(
        site.fleet.table,
        site.fleet.instance_ids,
        private=["10.0.0.10", WORKER],
        host_keys=[master.host_key, master.host_key],
    )
    assert site.dlcluster("ssh", "--", "true").returncode == 0
    done = site.dlcluster("ssh", "worker2", "--", "echo in")
    assert (done.returncode, done.stdout) == (255, "")


@pytest.mark.parametrize(
    ("host", "address"), [("demo-master", MASTER), ("demo-worker1", MASTER), ("demo-worker2", WORKER)]
)
def test_printed_block_works_with_plain_ssh(site: Site, tmp_path: Path, host: str, address: str) -> None:
    block = site.dlcluster("ssh-config", "-i", str(site.identity))
    assert block.returncode == 0, block.stderr
    # The master resolves a worker's name with its hosts file, and this machine is not a master.
    resolved = block.stdout.replace("HostName deeplearning-worker2\n", f"HostName {WORKER}\n")
    config = tmp_path / "config"
    config.write_text(f"{resolved}\nHost *\n  Port {site.port}\n  BatchMode yes\n")
    plain = subprocess.run(
        ["/usr/bin/ssh", "-F", config, host, SHOW],
        env=site.environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    # grep's exit code is that number; the agent is forwarded only to the master.
    expected = (0, f"{address}\n1\n") if address == MASTER else (1, f"{address}\n0\n")
    assert (plain.returncode, plain.stdout) == expected, plain.stderr


ODD = ["a b", "50%h%%p", "it's", 'say "x"', "back\\slash \\'", "$(touch marker)`touch marker`", ":%p *?[a]"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("node", [0, 1])
def test_paths_with_special_characters_reach_ssh(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, node: int
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / name
    odd.mkdir()
    node_types: tuple[NodeType, ...] = ("master", "worker")
    members = [
        ClusterNode(
            node_index=node_index, instance_id="", address=address, node_type=node_type, host_key=server.host_key
        )
        for node_index, address, node_type, server in zip((1, 2), (MASTER, WORKER), node_types, site.nodes, strict=True)
    ]
    (odd / "known").write_text(known_hosts_text(members, None))
    shutil.copy(site.identity, odd / "identity")
    access = LoginSettings(
        cluster_name="demo",
        login_user=getpass.getuser(),
        master=members[0],
        master_address=MASTER,
        known_hosts_command=("/usr/bin/env", "sh", "-c", 'cat "$0"', str(odd / "known")),
        identity=str(odd / "identity"),
    )
    config = ["-F", str(tmp_path / "ssh_config")]
    (tmp_path / "bin" / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh {shlex.join(config)} "$@"\n')
    done = subprocess.run(
        ["ssh", *ssh_arguments(access, members[node]), 'echo "$SSH_CONNECTION" | cut -d" " -f3'],
        env={"PATH": site.environment["PATH"]}, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{(MASTER, WORKER)[node]}\n"), done.stderr
    assert not list(tmp_path.rglob("marker"))


def test_printed_block_has_no_address_that_a_replacement_changes(site: Site) -> None:
    names = [line.split()[1] for line in site.dlcluster("ssh-config").stdout.splitlines() if "HostName " in line]
    assert names == [MASTER, "deeplearning-worker2"]


def test_printed_block_refuses_another_key(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"{site.dlcluster('ssh-config').stdout}\nHost *\n  Port {site.port}\n  BatchMode yes\n")
    swap_keys(site)
    plain = subprocess.run(
        ["/usr/bin/ssh", "-F", config, "demo-master", "echo in"],
        env=site.environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (plain.returncode, plain.stdout) == (255, "")


# ---- run ----


def test_run_streams_both_outputs_and_returns_the_exit_code(
    site: Site, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = "head -c 3000000 /dev/zero; echo err >&2; exit 9"
    assert run_command(site.target(), command, stdout_fd=1, stderr_fd=2) == 9
    out, err = capfdbinary.readouterr()
    assert (out, err) == (bytes(3000000), b"err\n")


def test_run_forwards_the_agent(site: Site, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", site.environment["SSH_AUTH_SOCK"])
    assert run_command(site.target(), "ssh-add -l", stdout_fd=1, stderr_fd=2) == 0
    assert "(ED25519)" in capfd.readouterr().out


def test_run_ends_the_agents_threads_before_the_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", site.environment["SSH_AUTH_SOCK"])
    left_open = """
import os, socket, time
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["SSH_AUTH_SOCK"])
if not os.fork():
    os.closerange(0, 3)
    time.sleep(3)
"""
    with open_connection(site.target()) as master:
        assert master.stream(f"python3 -c {shlex.quote(left_open)}", stdout_fd=1, stderr_fd=2, forward_agent=True) == 0
        assert [thread for thread in threading.enumerate() if isinstance(thread, AgentRemoteProxy)] == []


def test_run_fails_when_the_host_key_is_not_the_tables(site: Site) -> None:
    with pytest.raises(ClusterError) as caught:
        run_command(site.target(host_key=site.nodes[1].host_key), "true", stdout_fd=1, stderr_fd=2)
    assert str(caught.value) == f"refused to log in to {MASTER}: its host key is not the one in the cluster's table"


def test_run_fails_when_the_key_is_not_accepted(site: Site, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    target = SshTarget(
        address=MASTER, user=getpass.getuser(), host_key=site.nodes[0].host_key,
        identity=str(tmp_path / "other"), port=site.port,
    )  # fmt: skip
    with pytest.raises(ClusterError, match=r"cannot log in to .*: Authentication failed"):
        run_command(target, "true", stdout_fd=1, stderr_fd=2)


def test_run_fails_without_an_ssh_server(site: Site) -> None:
    # Linux refuses the broadcast address at once, whatever listens on this machine's port 22.
    set_addresses(site.fleet.instance_ids[0], private="10.0.0.10", public=NOWHERE)
    done = site.dlcluster("run", "-i", str(site.identity), "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"dlcluster: cannot log in to {getpass.getuser()}@{NOWHERE}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.timeout(60)
def test_command_that_does_not_end_is_reported_at_its_deadline(site: Site) -> None:
    with open_connection(site.target()) as master:
        with pytest.raises(ClusterError, match=f"waited 1 s for a command on {MASTER}, which did not end"):
            master.output("echo begun; sleep 30", timeout_s=0.6)
        assert master.output("echo still there", timeout_s=30).stdout == b"still there\n"
