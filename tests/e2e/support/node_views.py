"""Compare what each node shows of itself and of the cluster with what it should show.

The expected values come from EC2 and from the nodes' own host keys, never from files that the agent wrote.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from local.faults.clients import client
from tests.e2e.support.deployed_cluster import DeployedCluster, node_disk

MASTER = "deeplearning-master"
AGREE_TIMEOUT_S = 180.0
"""Seconds until all nodes show a change of the cluster; an agent polls every few seconds."""
READ_NODE = """
cat /var/lib/cloud/data/instance-id /proc/sys/kernel/random/boot_id
systemctl show -p ActiveEnterTimestampMonotonic --value deeplearning-agent
readlink /opt/deeplearning/current
echo --
cat /opt/deeplearning/workers
echo --
bash -lc 'echo $DEEPLEARNING_WORKERS_COUNT'
systemctl show-environment | sed -n 's/^DEEPLEARNING_WORKERS_COUNT=//p'
echo --
grep '^[^#]*deeplearning-' /etc/hosts
echo --
grep '^[^#]*deeplearning-' /etc/ssh/ssh_known_hosts
"""
LOG_IN_EVERYWHERE = """
for host in $(cat $DEEPLEARNING_WORKERS_PATH); do
  ssh -n -o BatchMode=yes $host 'echo $DEEPLEARNING_INSTANCE_ID $DEEPLEARNING_WORKERS_COUNT'
done
"""

InstancesByAlias = Mapping[str, str]
"""Instance id by host name, in index order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeIdentity:
    """Values that change when a node is replaced or rebooted, or its agent restarts."""

    instance_id: str
    boot_id: str
    agent_started: str
    release: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterView:
    """What a node tells its programs about the cluster."""

    workers: list[str]
    counts: list[str]
    """Counts in login shells and in systemd units."""
    addresses: dict[str, str]
    host_keys: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeView:
    """A node's own view of itself and of the cluster."""

    identity: NodeIdentity
    cluster: ClusterView


def read_node(cluster: DeployedCluster, alias: str) -> NodeView:
    identity, workers, counts, hosts, keys = (part.splitlines() for part in cluster.on(alias, READ_NODE).split("--\n"))
    instance_id, boot_id, agent_started, release = identity
    shown = ClusterView(
        workers=workers,
        counts=counts,
        addresses={name: line.split()[0] for line in hosts for name in line.split()[1:]},
        host_keys={
            name: line.split(maxsplit=1)[1]
            for line in keys
            for name in line.split()[0].split(",")
            if name.startswith("deeplearning-")
        },
    )
    return NodeView(
        identity=NodeIdentity(instance_id=instance_id, boot_id=boot_id, agent_started=agent_started, release=release),
        cluster=shown,
    )


def identities(cluster: DeployedCluster, instances: InstancesByAlias) -> dict[str, NodeIdentity]:
    return {alias: read_node(cluster, alias).identity for alias in instances}


def expected_view(instances: InstancesByAlias) -> ClusterView:
    """Return what every node of a cluster with these members should show."""
    reservations = client("ec2").describe_instances(InstanceIds=[*instances.values()])["Reservations"]
    addresses = {
        instance["InstanceId"]: instance.get("PrivateIpAddress", "")
        for reservation in reservations
        for instance in reservation["Instances"]
    }
    ended = [instance_id for instance_id, address in addresses.items() if not address]
    assert not ended, f"{', '.join(ended)} should be running, and have been ended"
    names = {MASTER: next(iter(instances.values())), **instances}
    return ClusterView(
        workers=[*instances],
        counts=[str(len(instances))] * 2,
        addresses={name: addresses[instance_id] for name, instance_id in names.items()},
        host_keys={name: _host_key(instance_id) for name, instance_id in names.items()},
    )


def _host_key(instance_id: str) -> str:
    """Return a node's host key; empty if it has none yet."""
    file = node_disk(instance_id) / "etc/ssh/ssh_host_ed25519_key.pub"
    return " ".join(file.read_text().split()[:2]) if file.exists() else ""


def wait_for_agreement(cluster: DeployedCluster, instances: InstancesByAlias) -> None:
    """Wait until every node shows these members; the user's ssh configuration is updated on the way."""
    deadline = time.monotonic() + AGREE_TIMEOUT_S
    for alias in (MASTER, *instances):
        while (shown := read_node(cluster, alias).cluster) != (expected := expected_view(instances)):
            assert time.monotonic() < deadline, (
                f"waited {AGREE_TIMEOUT_S:.0f} s for {alias}, which shows\n{shown}\nnot\n{expected}"
            )
            time.sleep(0.5)
        if alias == MASTER:
            cluster.user.write_ssh_config()


def logins_from(cluster: DeployedCluster, alias: str) -> list[str]:
    """Log in from a node to every worker in its list; return each one's instance id and workers count."""
    return cluster.user.ssh(alias, LOG_IN_EVERYWHERE).splitlines()
