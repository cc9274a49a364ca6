"""Nodes that leave the cluster while a job runs on them, as the agent of this node keeps it.

A node with notice of its end, such as a spot instance's, leaves the membership some time before it goes: see
docs/healing.md. One that has crashed leaves it too. A node that joins is nobody's business here.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.contract import MASTER_HOST, NODE_STATE, WORKER_HOST_PREFIX, worker_host
from launcher.hosts.hostfile import Host
from launcher.job.node import LOST, Failure, settle

LOOK_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterView:
    """Who is in the cluster, and has no notice of its end."""

    own: str
    """The instance that we are on."""
    instances: Mapping[str, str]
    """By host name and by address."""
    noticed: frozenset[str] = frozenset()
    """Instances that keep their slots though the cluster no longer counts on them: they have notice, as a rule.

    Also one that has crashed may be for a while: it does not answer any more (launcher.job.attempt).
    """

    def has(self, instance: str | None) -> bool:
        """Whether the cluster counts on an instance."""
        return instance in self.instances.values()


def parse_cluster_view(text: str) -> ClusterView:
    """What the agent has written."""
    state = json.loads(text)
    instances: dict[str, str] = {}
    noticed = frozenset(member["instance_id"] for member in state["members"] if member.get("away"))
    for member in state["members"]:
        if not member.get("away"):
            names = (worker_host(member["slot"]), *([MASTER_HOST] if member["slot"] == 1 else []), member["address"])
            instances |= dict.fromkeys(names, member["instance_id"])
    return ClusterView(own=state["instance_id"], instances=instances, noticed=noticed)


class Membership:
    """The agent's file, read again when it is another one."""

    def __init__(self, path: Path = Path(NODE_STATE)) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._present: ClusterView | None = None

    def look(self) -> ClusterView | None:
        """What it says; what it said last while it cannot be read; None where there never was one."""
        try:
            found = self._path.stat()
            if (found.st_ino, found.st_mtime_ns) != self._seen:
                self._present = parse_cluster_view(self._path.read_text())
                self._seen = (found.st_ino, found.st_mtime_ns)
        except (OSError, ValueError, KeyError, TypeError):
            # Of another release, or none: nodes that go are then found by their silence.
            pass
        return self._present


def find_preempted(hosts: Mapping[Host, str | None], present: ClusterView) -> Failure | None:
    """The end of a job on `hosts`, each with the instance that it was when the job started."""
    if not present.has(present.own):
        return Failure(exit_code=LOST, reason="this node leaves the cluster, and the launcher with it", final=True)
    for host, instance in hosts.items():
        if instance is None and not host.name.startswith(WORKER_HOST_PREFIX):
            continue  # a machine of the user's own
        if not present.has(instance):
            preempted = instance in present.noticed
            return Failure(
                exit_code=LOST, reason=f"{host}: leaves the cluster", preempted=preempted, preempted_host=host
            )
    return None


async def watch_for_preemption(
    hosts: Sequence[Host], failure: "asyncio.Future[Failure]", *, membership: Membership | None = None
) -> None:
    """Fail the job as soon as a node of it, or this one, has notice of its end or is gone."""
    membership = membership or Membership()
    present = membership.look()
    if present is None:
        return
    started_on = {host: present.instances.get(host.name) for host in hosts}
    while (preempted_host := find_preempted(started_on, present)) is None:
        await asyncio.sleep(LOOK_S)
        present = membership.look() or present
    settle(failure, preempted_host)
