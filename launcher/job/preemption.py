"""Watch for nodes that leave the cluster while a job runs on them, in the state file of this node's agent.

A node with a notice, such as a spot instance's, leaves the membership some time before it ends: see docs/healing.md. A
crashed node leaves it too. Nodes that join do not matter here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.contract import MASTER_HOST, NODE_STATE, WORKER_HOST_PREFIX, worker_host
from launcher.hosts.hostfile import Host
from launcher.job.failure import NODE_LOST, Failure, set_first_failure

POLL_S = 1.0
"""Seconds between reads of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterView:
    """Members of the cluster that have no notice."""

    own_instance: str
    """Instance ID of this machine."""
    instances: Mapping[str, str]
    """Instance IDs by host name and by address."""
    draining_instances: frozenset[str] = frozenset()
    """Instances that keep their node index although the cluster no longer counts on them, usually because of a notice.

    A crashed instance may be among them for a while, but does not answer (launcher.job.attempt).
    """

    def has(self, instance: str | None) -> bool:
        """Return True if the cluster counts on an instance."""
        return instance in self.instances.values()


def parse_cluster_view(text: str) -> ClusterView:
    """Parse the agent's state file, with the checks of the table's records."""
    # Imported late: machines outside a cluster have no such file.
    from bootstrap.cluster.records import parse_state

    state = parse_state(text, networks=None)
    instances: dict[str, str] = {}
    draining_instances = frozenset(member.instance_id for member in state.members if member.draining)
    for member in state.members:
        if not member.draining:
            names = (worker_host(member.node_index), *([MASTER_HOST] if member.node_index == 1 else []), member.address)
            instances |= dict.fromkeys(names, member.instance_id)
    return ClusterView(own_instance=state.instance_id, instances=instances, draining_instances=draining_instances)


class NodeStateReader:
    """Reads the state file of this node's agent, again when it changes."""

    def __init__(self, path: Path = Path(NODE_STATE)) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._view: ClusterView | None = None

    def read(self) -> ClusterView | None:
        """Return the file's contents, the previous ones if it cannot be read; None if it never existed."""
        try:
            status = self._path.stat()
            if (status.st_ino, status.st_mtime_ns) != self._version:
                self._view = parse_cluster_view(self._path.read_text())
                self._version = (status.st_ino, status.st_mtime_ns)
        except (OSError, ValueError):
            # The file is missing or of another release. A preempted node is then noticed by its silence.
            pass
        return self._view


def departure_failure(hosts: Mapping[Host, str | None], view: ClusterView) -> Failure | None:
    """Return the failure of a job if this node or one of its hosts leaves the cluster; None if all stay.

    `hosts` maps each host to its instance at the start of the job.
    """
    if not view.has(view.own_instance):
        return Failure(exit_code=NODE_LOST, reason="this node leaves the cluster, and the launcher with it", final=True)
    for host, instance in hosts.items():
        if instance is None and not host.name.startswith(WORKER_HOST_PREFIX):
            continue  # a machine outside the cluster
        if not view.has(instance):
            preempted = instance in view.draining_instances
            return Failure(
                exit_code=NODE_LOST, reason=f"{host}: leaves the cluster", preempted=preempted, preempted_host=host
            )
    return None


async def watch_for_preemption(
    hosts: Sequence[Host], failure: "asyncio.Future[Failure]", *, reader: NodeStateReader | None = None
) -> None:
    """Fail the job as soon as one of its nodes, or this one, has a notice or is gone."""
    reader = reader or NodeStateReader()
    view = reader.read()
    if view is None:
        return
    started_on = {host: view.instances.get(host.name) for host in hosts}
    while (lost := departure_failure(started_on, view)) is None:
        await asyncio.sleep(POLL_S)
        view = reader.read() or view
    set_first_failure(failure, lost)
