"""Test logins by dlcluster ssh and by its printed configuration: to a master, and through it to a worker."""

import getpass
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap.contract import NodeType
from cli.aws.nodes import ClusterNode
from cli.commands.access.ssh import shell_line
from cli.ssh.config import LoginSettings, known_hosts_text, ssh_arguments
from tests.cli.moto_cluster import put_membership
from tests.cli.ssh.sshd_cluster import MASTER, WORKER, SshdCluster


def swap_keys(sshd_cluster: SshdCluster) -> None:
    """Swap the nodes' keys in the table."""
    put_membership(
        sshd_cluster.moto_cluster.table,
        sshd_cluster.moto_cluster.instance_ids,
        private=["10.0.0.10", WORKER],
        host_keys=[node.host_key for node in reversed(sshd_cluster.nodes)],
    )


SHOW = 'echo "$SSH_CONNECTION" | cut -d" " -f3; ssh-add -l | grep -c ED25519'


def test_ssh_logs_in_to_the_master_with_the_agent(sshd_cluster: SshdCluster) -> None:
    done = sshd_cluster.dlcluster("ssh", "--", SHOW)
    assert (done.returncode, done.stdout) == (0, f"{MASTER}\n1\n"), done.stderr


@pytest.mark.parametrize("name", ["worker2", "2", "deeplearning-worker2"])
def test_ssh_reaches_a_worker_through_the_master(sshd_cluster: SshdCluster, name: str) -> None:
    done = sshd_cluster.dlcluster("ssh", name, "--", SHOW + '; echo "$SSH_CONNECTION" | cut -d" " -f1')
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


def test_ssh_keeps_arguments_and_the_exit_code(sshd_cluster: SshdCluster) -> None:
    done = sshd_cluster.dlcluster("ssh", "--", "sh", "-c", 'printf "%s|" "$@"; exit 7', "x", "a b", "$HOME", "it's")
    assert (done.returncode, done.stdout) == (7, "a b|$HOME|it's|")


@pytest.mark.parametrize("words", [("torchrun", "a b.py"), ("torchrun 'a b.py'",), ("pip", "a b.py")])
def test_missing_program_of_the_environment_is_explained(words: tuple[str, ...], tmp_path: Path) -> None:
    def run() -> tuple[int, str, list[str]]:
        line = ["/bin/sh", "-c", shell_line(words)]
        done = subprocess.run(line, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr.splitlines()

    name = words[0].partition(" ")[0]
    code, _, errors = run()
    hint = f"dlcluster: the shell of a node has no {name}: launch finds it (docs/use/log-in.md, On a node)"
    assert (code, errors[0]) == (127, hint)
    (tmp_path / name).write_text('#!/bin/sh\necho "$1"; exit 3\n')
    (tmp_path / name).chmod(0o755)
    assert run() == (3, "a b.py\n", [])


@pytest.mark.parametrize("node", ["master", "worker2"])
def test_host_key_that_is_not_the_tables_is_refused(sshd_cluster: SshdCluster, node: str) -> None:
    swap_keys(sshd_cluster)
    done = sshd_cluster.dlcluster("ssh", node, "--", "echo in")
    assert done.returncode == 255
    assert done.stdout == ""
    assert "Host key verification failed." in done.stderr


def test_worker_with_a_wrong_key_is_refused(sshd_cluster: SshdCluster) -> None:
    master = sshd_cluster.nodes[0]
    put_membership(
        sshd_cluster.moto_cluster.table,
        sshd_cluster.moto_cluster.instance_ids,
        private=["10.0.0.10", WORKER],
        host_keys=[master.host_key, master.host_key],
    )
    assert sshd_cluster.dlcluster("ssh", "--", "true").returncode == 0
    done = sshd_cluster.dlcluster("ssh", "worker2", "--", "echo in")
    assert (done.returncode, done.stdout) == (255, "")


@pytest.mark.parametrize(
    ("host", "address"), [("demo-master", MASTER), ("demo-worker1", MASTER), ("demo-worker2", WORKER)]
)
def test_printed_block_works_with_plain_ssh(sshd_cluster: SshdCluster, tmp_path: Path, host: str, address: str) -> None:
    block = sshd_cluster.dlcluster("ssh-config", "-i", str(sshd_cluster.identity))
    assert block.returncode == 0, block.stderr
    # The master resolves a worker's name with its hosts file, and this machine is not a master.
    resolved = block.stdout.replace("HostName deeplearning-worker2\n", f"HostName {WORKER}\n")
    config = tmp_path / "config"
    config.write_text(f"{resolved}\nHost *\n  Port {sshd_cluster.port}\n  BatchMode yes\n")
    plain = subprocess.run(
        ["/usr/bin/ssh", "-F", config, host, SHOW],
        env=sshd_cluster.environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    # grep's exit code is that number; the agent is forwarded only to the master.
    expected = (0, f"{address}\n1\n") if address == MASTER else (1, f"{address}\n0\n")
    assert (plain.returncode, plain.stdout) == expected, plain.stderr


ODD = ["a b", "50%h%%p", "it's", 'say "x"', "back\\slash \\'", "$(touch marker)`touch marker`", ":%p *?[a]"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("node", [0, 1])
def test_paths_with_special_characters_reach_ssh(
    sshd_cluster: SshdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, node: int
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / name
    odd.mkdir()
    node_types: tuple[NodeType, ...] = ("master", "worker")
    members = [
        ClusterNode(
            node_index=node_index, instance_id="", address=address, node_type=node_type, host_key=server.host_key
        )
        for node_index, address, node_type, server in zip(
            (1, 2), (MASTER, WORKER), node_types, sshd_cluster.nodes, strict=True
        )
    ]
    (odd / "known").write_text(known_hosts_text(members, None))
    shutil.copy(sshd_cluster.identity, odd / "identity")
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
        env={"PATH": sshd_cluster.environment["PATH"]}, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{(MASTER, WORKER)[node]}\n"), done.stderr
    assert not list(tmp_path.rglob("marker"))


def test_printed_block_has_no_address_that_a_replacement_changes(sshd_cluster: SshdCluster) -> None:
    names = [
        line.split()[1] for line in sshd_cluster.dlcluster("ssh-config").stdout.splitlines() if "HostName " in line
    ]
    assert names == [MASTER, "deeplearning-worker2"]


def test_printed_block_refuses_another_key(sshd_cluster: SshdCluster, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"{sshd_cluster.dlcluster('ssh-config').stdout}\nHost *\n  Port {sshd_cluster.port}\n  BatchMode yes\n"
    )
    swap_keys(sshd_cluster)
    plain = subprocess.run(
        ["/usr/bin/ssh", "-F", config, "demo-master", "echo in"],
        env=sshd_cluster.environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (plain.returncode, plain.stdout) == (255, "")
