"""Test that logins forward the agent, verify host keys, and reach no more than needed."""

import socket
import stat
import subprocess
from pathlib import Path

import pytest

from local.network.vpc_network import in_namespace
from tests.e2e.support.deployed_cluster import DeployedCluster, node_disk

WORKER_HOP = "ssh -o BatchMode=yes deeplearning-worker2 hostname"
LOUD_HOP = WORKER_HOP.replace("ssh", "ssh -v", 1)
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


def reachable(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def test_master_logs_in_to_a_worker_by_name_with_the_clusters_key(cluster: DeployedCluster) -> None:
    # The cluster's key is used even if a person's agent is available.
    printed = log_in(
        cluster, "deeplearning-master", f"test -S $SSH_AUTH_SOCK && {WORKER_HOP.replace('ssh', 'ssh -v', 1)}"
    )
    address = cluster.on("deeplearning-master", "getent ahostsv4 deeplearning-worker2").split()[0]
    assert printed.stdout.strip() == "ip-" + address.replace(".", "-"), printed.stderr
    assert "Server accepts key: /etc/deeplearning/cluster-key/id_ed25519 " in printed.stderr


@pytest.mark.parametrize("options", ["", "-A "])
def test_ssh_agent_reaches_the_master_and_no_worker(cluster: DeployedCluster, options: str) -> None:
    hop = f"ssh {options}-o BatchMode=yes deeplearning-worker2 'echo agent=$SSH_AUTH_SOCK'"
    assert cluster.user.ssh("deeplearning-master", f"test -S $SSH_AUTH_SOCK && {hop}") == "agent=\n"
    # The -A of ssh_command requests it.
    assert cluster.user.ssh("deeplearning-worker2", "echo agent=$SSH_AUTH_SOCK") == "agent=\n"


def test_master_logs_in_without_a_terminal_with_the_clusters_key(cluster: DeployedCluster) -> None:
    # -a follows ssh_command's -A, and the last one wins.
    assert log_in(cluster, "deeplearning-master", f"test -z $SSH_AUTH_SOCK && {WORKER_HOP}", "-a").returncode == 0


def test_login_without_a_key_is_refused(cluster: DeployedCluster) -> None:
    # The login fails immediately without trying another method: no password is requested.
    refused = log_in(cluster, "deeplearning-master", "true", "-o", "PubkeyAuthentication=no")
    assert refused.returncode == 255
    assert "Permission denied (publickey)." in refused.stderr


@pytest.mark.parametrize("host", ["deeplearning-worker3", "deeplearning-master"])
@pytest.mark.parametrize("option", ["-A", "-a"])
def test_worker_cannot_log_in_to_other_nodes(cluster: DeployedCluster, host: str, option: str) -> None:
    refused = log_in(cluster, "deeplearning-worker2", f"ssh -o BatchMode=yes {host} hostname", option)
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_cluster_key_is_refused_from_outside(cluster: DeployedCluster) -> None:
    # A copy of the private key is useless on a worker, because it is valid only from the master's address.
    key = "/etc/deeplearning/cluster-key/id_ed25519"
    copied = cluster.on("deeplearning-master", f"cat {key}")
    copy = "umask 077; cat > copy; ssh -o BatchMode=yes -o IdentitiesOnly=yes -i copy deeplearning-worker3 true; "
    refused = log_in(cluster, "deeplearning-worker2", f"{copy} code=$?; rm copy; exit $code", "-a", text=f"{copied}\n")
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_only_the_master_has_the_clusters_private_key(cluster: DeployedCluster) -> None:
    for instance_id in cluster.addresses:
        key = node_disk(instance_id) / "etc/deeplearning/cluster-key/id_ed25519"
        assert key.exists() == (instance_id == cluster.master["InstanceId"])
    assert stat.S_IMODE(key_of(cluster).stat().st_mode) == 0o600


def key_of(cluster: DeployedCluster) -> Path:
    return node_disk(cluster.master["InstanceId"]) / "etc/deeplearning/cluster-key/id_ed25519"


def test_every_node_has_a_host_key_of_its_own(cluster: DeployedCluster) -> None:
    keys = {node_disk(i).joinpath(f"{HOST_KEY[1:]}.pub").read_text().split()[1] for i in cluster.addresses}
    assert len(keys) == len(cluster.instances)


@pytest.mark.parametrize("start", ["deeplearning-master", "the user's machine"])
def test_node_with_an_unpublished_key_is_refused(cluster: DeployedCluster, start: str) -> None:
    alias, key = "deeplearning-worker3", HOST_KEY
    change = (
        f"sudo systemctl stop deeplearning-agent && sudo mv {key} /root/key && sudo mv {key}.pub /root/key.pub && "
        f"sudo ssh-keygen -q -t ed25519 -N '' -f {key} && sudo systemctl restart ssh"
    )
    restore = f"mv /root/key {key} && mv /root/key.pub {key}.pub && systemctl restart ssh deeplearning-agent"
    # Both use the tests' shared connection, which existed before and stays open.
    cluster.on(alias, change)
    try:
        hop = (start, f"ssh -o BatchMode=yes {alias} true") if start == "deeplearning-master" else (alias, "true")
        refused = log_in(cluster, *hop)
    finally:
        cluster.on(alias, f"sudo sh -c '{restore}'")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr
    assert log_in(cluster, *hop).returncode == 0


def log_in(
    cluster: DeployedCluster, host: str, command: str, *options: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Log in without the shared connection; return the result, failed or not."""
    return subprocess.run(
        cluster.user.ssh_command(host, command, options=options),
        env=dict(cluster.user.environment),
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_ssh_config_serves_scp_and_rsync(cluster: DeployedCluster, tmp_path: Path) -> None:
    sent, config = tmp_path / "sent", str(cluster.user.ssh_config)
    sent.write_text("contents")
    cluster.user.run("scp", "-q", "-F", config, str(sent), "deeplearning-worker2:by-scp")
    assert cluster.on("deeplearning-worker2", "cat by-scp") == "contents"
    cluster.user.run("rsync", "-e", f"ssh -F {config}", str(sent), "deeplearning-worker2:by-rsync")
    assert cluster.on("deeplearning-worker2", "cat by-rsync") == "contents"


@pytest.mark.parametrize(("node", "alias"), [("master", "deeplearning-master"), ("worker2", "deeplearning-worker2")])
def test_dlcluster_ssh_opens_a_session(cluster: DeployedCluster, node: str, alias: str) -> None:
    assert cluster.user.output("dlcluster", "ssh", node, "--", "hostname").strip() == cluster.on(alias, "hostname")


def test_from_outside_only_the_masters_ssh_port_answers(cluster: DeployedCluster) -> None:
    public = cluster.master["PublicIpAddress"]
    assert reachable(public, 22)
    assert not reachable(public, 111)
    for instance in cluster.instances[1:]:
        assert "PublicIpAddress" not in instance
        assert not reachable(instance["PrivateIpAddress"], 22)


def test_members_reach_each_other_on_any_port(cluster: DeployedCluster) -> None:
    receiver, sender = cluster.instances[1], cluster.instances[2]
    with in_namespace(receiver["InstanceId"], lambda: socket.create_server(("0.0.0.0", 61234))):
        assert in_namespace(sender["InstanceId"], lambda: reachable(receiver["PrivateIpAddress"], 61234))
