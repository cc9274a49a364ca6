"""All faults behind one door. Each takes effect before its call returns, and once more is as good as once.

A node is named by its instance id, its host name or the end of that (worker2, master). Inside a local AWS only.
"""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import boto3

from local.aws.api_faults import ApiFault, Kind
from local.errors import LocalError
from local.faults import api, disk, network, power
from local.faults.nodes import NodeHandle, all_nodes, node_of
from local.faults.slots import resolve, slots_by_cluster
from local.faults.targets import Target, find_target
from local.network.addresses import API_PORT
from local.node.spot_notices import announce_interruption, recommend_rebalance

SPOT_NOTICE_S = 120.0
"""How long before the end EC2 tells a spot instance ("Spot Instance interruption notices")."""


class Faults:
    """The faults of one local AWS. Raises LocalError when a name leads to no node."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    @classmethod
    def here(cls) -> "Faults":
        """Of the local AWS that this process is in."""
        return cls(Path(os.environ["LOCAL_AWS_DIR"]))

    def node(self, name: str) -> NodeHandle:
        """The node that a name means now; it may have ended when it is named by its id."""
        clusters = {} if name.startswith("i-") else slots_by_cluster(self._run_dir)
        return node_of(self._run_dir, resolve(name, clusters))

    def target(self, name: str) -> Target:
        """The same in words, of an instance that has not ended."""
        return find_target(self._run_dir, name)

    def slots(self, cluster: str) -> dict[int, str]:
        """Which instance holds which slot of a cluster now, as its nodes say; empty before any has joined."""
        return slots_by_cluster(self._run_dir).get(cluster, {})

    # ---- the machine ----

    def kill(self, name: str) -> None:
        """All processes at once, as when the host crashes; EC2 then shows the instance terminated."""
        power.kill(self.node(name))

    def terminate(self, name: str) -> None:
        """Through EC2, as somebody with the console does."""
        boto3.client("ec2").terminate_instances(InstanceIds=[self.node(name).instance_id])

    def reboot(self, name: str) -> None:
        """Through EC2; the node comes back with its disk and its addresses."""
        boto3.client("ec2").reboot_instances(InstanceIds=[self.node(name).instance_id])

    def freeze(self, name: str) -> None:
        """A hung host: nothing runs, nothing answers, not even a ping."""
        node = self.node(name)
        power.freeze(node)
        network.strike(network.HUNG, network.link(node.link))

    def thaw(self, name: str) -> None:
        node = self.node(name)
        network.spare(network.HUNG, network.link(node.link))
        power.thaw(node)

    def kill_agent(self, name: str) -> None:
        """The agent's process by SIGKILL; what becomes of it is systemd's business."""
        power.kill_agent(self.node(name))

    def spot_notice(self, name: str, *, seconds: float = SPOT_NOTICE_S) -> None:
        """EC2 wants a spot instance back: the metadata service says when, and then the instance is terminated.

        A second notice says a new time. None can be withdrawn.
        """
        instance_id, now = self.node(name).instance_id, datetime.now(timezone.utc)
        announce_interruption(self._run_dir, instance_id, at=now + timedelta(seconds=seconds))

    def rebalance_recommendation(self, name: str) -> None:
        """The metadata service says that an interruption is likely; nothing else happens."""
        recommend_rebalance(self._run_dir, self.node(name).instance_id, now=datetime.now(timezone.utc))

    # ---- disk ----

    def fill_disk(self, name: str) -> None:
        """All that was free is taken: writes fail with ENOSPC."""
        disk.fill(self.node(name))

    def free_disk(self, name: str) -> None:
        disk.free(self.node(name))

    # ---- network ----

    def partition(self, name: str, other: str | None = None) -> None:
        """Cut a node off from everybody, metadata and AWS's API included, or two nodes from each other."""
        network.strike(*self._cut(name, other))

    def reconnect(self, name: str, other: str | None = None) -> None:
        network.spare(*self._cut(name, other))

    def _cut(self, name: str, other: str | None) -> tuple[str, ...]:
        link = self.node(name).link
        if other is None:
            return network.CUT, network.link(link)
        other_link = self.node(other).link
        if other_link == link:
            raise LocalError(f"{name} and {other} are the same node")
        return network.PAIRS, *network.both_ways(link, other_link)

    def metadata_outage(self, name: str) -> None:
        """The node's metadata service does not answer."""
        network.strike(network.NO_METADATA, network.link(self.node(name).link))

    def metadata_back(self, name: str) -> None:
        network.spare(network.NO_METADATA, network.link(self.node(name).link))

    # ---- control plane ----

    def api_outage(self, name: str | None = None, *, refuse: bool = False) -> None:
        """No node, or one, reaches AWS's API: connections time out, or, for all nodes, are refused."""
        if name is None:
            network.spare(network.API_SILENT if refuse else network.API_REFUSED, str(API_PORT))
            network.strike(network.API_REFUSED if refuse else network.API_SILENT, str(API_PORT))
        else:
            network.strike(network.NO_API, network.link(self.node(name).link))

    def api_back(self, name: str | None = None) -> None:
        """End an outage of all nodes, or of one."""
        if name is None:
            for ports in (network.API_SILENT, network.API_REFUSED):
                network.spare(ports, str(API_PORT))
        else:
            network.spare(network.NO_API, network.link(self.node(name).link))

    def throttle(
        self, service: str | None = None, *, share: float = 1.0, name: str | None = None, seed: int = 0
    ) -> None:
        """Answer a share of the nodes' requests to a service, or to all, with the service's throttling error."""
        api.put(self._run_dir, self._fault("throttle", service, share=share, name=name, seed=seed))

    def stop_throttling(self, service: str | None = None, *, name: str | None = None) -> None:
        api.take_back(self._run_dir, self._fault("throttle", service, name=name))

    def api_errors(
        self, service: str | None = None, *, share: float = 1.0, name: str | None = None, seed: int = 0
    ) -> None:
        """Answer a share of the nodes' requests to a service, or to all, with its internal error (HTTP 500)."""
        api.put(self._run_dir, self._fault("error", service, share=share, name=name, seed=seed))

    def stop_api_errors(self, service: str | None = None, *, name: str | None = None) -> None:
        api.take_back(self._run_dir, self._fault("error", service, name=name))

    def _fault(
        self, kind: Kind, service: str | None, *, name: str | None, share: float = 1.0, seed: int = 0
    ) -> ApiFault:
        instance_id = None if name is None else self.node(name).instance_id
        return ApiFault(kind=kind, service=service, instance_id=instance_id, share=share, seed=seed)

    # ---- healing ----

    def heal(self) -> None:
        """Undo all that can be undone: what has died or was rebooted stays so, and notices stand."""
        network.heal_all()
        api.heal_all(self._run_dir)
        for node in all_nodes(self._run_dir):
            power.thaw(node)
            disk.free(node)
