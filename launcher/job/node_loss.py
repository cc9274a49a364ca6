"""Watch the state file of this node's agent for nodes that leave the cluster while a job runs on them.

A node with a notice, such as a spot instance's, leaves the membership some time before it is terminated
(docs/healing.md). A crashed node leaves it too. Nodes that join do not matter here.
"""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bootstrap.contract import MASTER_HOST, MASTER_INDEX, NODE_HOST_PREFIX, NODE_STATE_FILE, worker_host
from launcher.hosts.hostfile import Host
from launcher.job.failure import NODE_LOST_EXIT_CODE, Failure, FailureCause, set_first_failure
from launcher.output.notes import note
from launcher.output.sink import Sink

POLL_S = 1.0
"""Seconds between reads of the file."""
NODE_LOSS_TIMEOUT_S = 60.0
"""Seconds after a process's failure within which its node may leave the cluster: the master polls EC2 every 45 s."""
TERMINATED_EXIT_CODE = 128 + signal.SIGTERM
"""Exit code of a process that SIGTERM has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterView:
    """The cluster's members, as the agent on this machine last saw them."""

    own_instance: str
    """Instance ID of this machine."""
    instances: Mapping[str, str]
    """Instance IDs by host name and by address."""
    draining_instances: frozenset[str] = frozenset()
    """Instances that keep their node index although the cluster no longer counts on them, usually because of a notice.

    They may briefly include a crashed instance, but that one does not answer (launcher.job.failure.cause_after_run).
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
            names = (
                worker_host(member.node_index),
                *([MASTER_HOST] if member.node_index == MASTER_INDEX else []),
                member.address,
            )
            instances |= dict.fromkeys(names, member.instance_id)
    return ClusterView(own_instance=state.instance_id, instances=instances, draining_instances=draining_instances)


class NodeStateReader:
    """Reader of the state file of this node's agent; parses it again whenever it changes."""

    def __init__(self, path: Path = Path(NODE_STATE_FILE)) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._view: ClusterView | None = None

    def read(self) -> ClusterView | None:
        """Return the file's contents, or the previous ones if it cannot be read; None if it never existed."""
        try:
            status = self._path.stat()
            if (status.st_ino, status.st_mtime_ns) != self._version:
                self._view = parse_cluster_view(self._path.read_text())
                self._version = (status.st_ino, status.st_mtime_ns)
        except (OSError, ValueError):
            # The file is missing or from another release; a preempted node is then detected by its silence.
            pass
        return self._view


def node_loss_failure(hosts: Mapping[Host, str | None], view: ClusterView) -> Failure | None:
    """Return the job's failure if this node or one of its hosts is draining or lost; None if all stay.

    `hosts` maps each host to its instance at the start of the job.
    """
    if not view.has(view.own_instance):
        reason = "this node is leaving the cluster, which ends the launcher"
        return Failure(exit_code=NODE_LOST_EXIT_CODE, reason=reason, permanent=True)
    for host, instance in hosts.items():
        if instance is None and not host.name.startswith(NODE_HOST_PREFIX):
            continue  # a machine outside the cluster
        if not view.has(instance):
            if instance in view.draining_instances:
                reason, cause = f"{host} is draining", FailureCause.PREEMPTION
            else:
                reason, cause = f"{host} was lost", FailureCause.NODE_LOSS
            return Failure(exit_code=NODE_LOST_EXIT_CODE, reason=reason, cause=cause, departed_host=host)
    return None


def read_instance_ids(hosts: Sequence[Host], *, reader: NodeStateReader | None = None) -> dict[Host, str | None]:
    """Return the instance of each host; an empty mapping outside a cluster."""
    view = (reader or NodeStateReader()).read()
    return {} if view is None else {host: view.instances.get(host.name) for host in hosts}


async def wait_for_node_loss(failure: Failure, stderr: Sink, *, reader: NodeStateReader | None = None) -> Failure:
    """Wait a little to learn whether the failed rank's node was lost; if it was, change the cause to a node loss.

    A node that shuts down sends its ranks SIGTERM while its runner still answers, and leaves the membership only
    afterwards; SIGTERM is therefore taken as the sign of a shutdown. Stopping a job produces another failure.
    """
    if failure.cause is not FailureCause.PROCESS_EXIT or failure.permanent:
        return failure
    if failure.exit_code == TERMINATED_EXIT_CODE:
        return replace(failure, cause=FailureCause.NODE_LOSS)
    reader = reader or NodeStateReader()
    clock = asyncio.get_running_loop().time
    until = clock() + NODE_LOSS_TIMEOUT_S
    if failure.instances:
        await stderr.send(
            note(f"{failure.reason}; waiting at most {NODE_LOSS_TIMEOUT_S:g} s to see whether a node is lost")
        )
    while failure.instances and (view := reader.read()) is not None:
        if (lost := node_loss_failure(failure.instances, view)) is not None:
            return replace(failure, cause=FailureCause.NODE_LOSS, reason=f"{failure.reason}; {lost.reason}")
        if clock() >= until:
            break
        await asyncio.sleep(POLL_S)
    return failure


async def watch_for_node_loss(
    hosts: Sequence[Host], first_failure: "asyncio.Future[Failure]", *, reader: NodeStateReader | None = None
) -> None:
    """Fail the job as soon as this node, or any of its nodes, has a notice or is gone."""
    reader = reader or NodeStateReader()
    view = reader.read()
    if view is None:
        return
    instances = {host: view.instances.get(host.name) for host in hosts}
    while (lost := node_loss_failure(instances, view)) is None:
        await asyncio.sleep(POLL_S)
        view = reader.read() or view
    set_first_failure(first_failure, lost)
