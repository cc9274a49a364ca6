"""Cause and undo every fault: the methods of the class Faults.

A fault takes effect before its call returns, and repeating it changes nothing. A node is named by its instance id, its
host name or the end of that (worker2, master). Works only inside a local AWS. The decorators offer the faults to the
command line and to chaos plans.
"""

from datetime import datetime, timedelta, timezone
from pathlib import Path

from local.control_plane.api_faults import ApiFault, ApiFaultKind
from local.errors import LocalError
from local.faults import api, disk, host, limits, network
from local.faults.clients import client
from local.faults.fault_decorator import Arguments, fault, undoes
from local.faults.node_handle import NodeHandle, all_nodes, node_handle
from local.faults.node_indexes import members_by_cluster, resolve
from local.faults.targets import FaultTarget, find_target
from local.network.addresses import API_PORT
from local.node.spot_notices import announce_interruption, recommend_rebalance
from local.run_dir import current_run_dir
from local.storage.mount_targets import StorageFaults

SPOT_NOTICE_S = 120.0
"""Seconds between EC2's notice and the end of a spot instance ("Spot Instance interruption notices")."""


class Faults:
    """Causes and undoes the faults of one local AWS. Raises LocalError if a name denotes no node."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    @classmethod
    def current(cls) -> "Faults":
        """Return the faults of the current local AWS."""
        return cls(current_run_dir())

    def node(self, name: str) -> NodeHandle:
        """Return the node that a name currently denotes; one named by its id may have ended."""
        clusters = {} if name.startswith("i-") else members_by_cluster(self._run_dir)
        return node_handle(self._run_dir, resolve(name, clusters))

    def target(self, name: str) -> FaultTarget:
        """Describe the running instance that a name denotes."""
        return find_target(self._run_dir, name)

    def instances(self, cluster: str) -> dict[int, str]:
        """Return a cluster's instances by node index, as its nodes report them; empty before any has joined."""
        return members_by_cluster(self._run_dir).get(cluster, {})

    # ---- host ----

    @fault("kill", help="end all of a node's processes at once, as when its host crashes", report="killed {target}")
    def kill(self, name: str) -> None:
        """End all processes abruptly, like a crash of the host; EC2 then shows the instance terminated."""
        host.kill(self.node(name))

    @fault("terminate", help="terminate a node through EC2", report="terminated {target}")
    def terminate(self, name: str) -> None:
        """Terminate a node through EC2, like a user of the console."""
        client("ec2").terminate_instances(InstanceIds=[self.node(name).instance_id])

    @fault("reboot", help="reboot a node through EC2", report="rebooted {target}")
    def reboot(self, name: str) -> None:
        """Reboot a node through EC2; it comes back with its disk and its addresses."""
        client("ec2").reboot_instances(InstanceIds=[self.node(name).instance_id])

    @fault("freeze", help="hang a node: nothing runs, nothing answers", report="froze {target}")
    def freeze(self, name: str) -> None:
        """Hang the host: nothing runs, and nothing answers, not even a ping."""
        node = self.node(name)
        host.freeze(node)
        network.interrupt(network.FROZEN, network.link_element(node.link))

    @undoes("freeze")
    def end_freeze(self, name: str) -> None:
        """Resume a frozen node."""
        node = self.node(name)
        network.restore(network.FROZEN, network.link_element(node.link))
        host.thaw(node)

    @fault("kill-agent", help="send SIGKILL to a node's agent", report="killed the agent of {target}")
    def kill_agent(self, name: str) -> None:
        """Send SIGKILL to the agent's process; systemd decides what happens next."""
        host.kill_agent(self.node(name))

    @fault(
        "spot-notice",
        help="announce a node's interruption in its metadata, then terminate it",
        report="gave notice to {target}",
        arguments=Arguments.NODE_AND_SECONDS,
        plan_options=("seconds",),
    )
    def spot_notice(self, name: str, *, seconds: float = SPOT_NOTICE_S) -> None:
        """Announce an interruption in the metadata service; EC2 terminates the instance at the announced time.

        A second notice sets a new time. None can be withdrawn.
        """
        instance_id, now = self.node(name).instance_id, datetime.now(timezone.utc)
        announce_interruption(self._run_dir, instance_id, at=now + timedelta(seconds=seconds))

    @fault(
        "rebalance-recommendation",
        help="announce in a node's metadata that a spot interruption is likely",
        report="recommended a rebalance to {target}",
        in_random_plans=False,
    )
    def rebalance_recommendation(self, name: str) -> None:
        """Make the metadata service announce that an interruption is likely; nothing else happens."""
        recommend_rebalance(self._run_dir, self.node(name).instance_id, now=datetime.now(timezone.utc))

    # ---- disk ----

    @fault("fill-disk", help="fill a node's disk", report="filled the disk of {target}")
    def fill_disk(self, name: str) -> None:
        """Use up all free space, so that writes fail with ENOSPC."""
        disk.fill(self.node(name))

    @undoes("fill-disk")
    def end_fill_disk(self, name: str) -> None:
        """Release the space that ``fill_disk`` took."""
        disk.free(self.node(name))

    # ---- network ----

    @fault(
        "partition",
        help="isolate a node, or two from each other",
        report="isolated {target}",
        arguments=Arguments.NODE_AND_OTHER,
    )
    @fault("partition-pair", arguments=Arguments.NODE_AND_OTHER, on_command_line=False, node_count=2)
    def partition(self, name: str, other: str | None = None) -> None:
        """Cut a node off from everything, including metadata and AWS's API, or two nodes from each other."""
        network.interrupt(*self._partition_elements(name, other))

    @undoes("partition", "partition-pair")
    def end_partition(self, name: str, other: str | None = None) -> None:
        """Undo the partition of a node from everything, or of two nodes from each other."""
        network.restore(*self._partition_elements(name, other))

    def _partition_elements(self, name: str, other: str | None) -> tuple[str, ...]:
        link = self.node(name).link
        if other is None:
            return network.PARTITIONED, network.link_element(link)
        other_link = self.node(other).link
        if other_link == link:
            raise LocalError(f"{name} and {other} are the same node")
        return network.PARTITIONED_PAIRS, *network.pair_elements(link, other_link)

    @fault(
        "metadata-outage",
        help="stop a node's metadata service from answering",
        report="cut off the metadata of {target}",
    )
    def metadata_outage(self, name: str) -> None:
        """Stop the node's metadata service from answering."""
        network.interrupt(network.NO_METADATA, network.link_element(self.node(name).link))

    @undoes("metadata-outage")
    def end_metadata_outage(self, name: str) -> None:
        """Let the node's metadata service answer again."""
        network.restore(network.NO_METADATA, network.link_element(self.node(name).link))

    # ---- control plane ----

    @fault(
        "api-outage",
        help="cut the nodes off from AWS's API",
        report="cut off {target} from AWS's API",
        arguments=Arguments.NODE_OR_ALL,
        node_count=0,
    )
    def api_outage(self, name: str | None = None, *, refuse: bool = False) -> None:
        """Cut all nodes, or one, off from AWS's API: connections time out or, for all nodes, are refused."""
        if name is None:
            network.restore(network.API_SILENT if refuse else network.API_REFUSED, str(API_PORT))
            network.interrupt(network.API_REFUSED if refuse else network.API_SILENT, str(API_PORT))
        else:
            network.interrupt(network.NO_API, network.link_element(self.node(name).link))

    @undoes("api-outage")
    def end_api_outage(self, name: str | None = None) -> None:
        """End an outage of all nodes, or of one."""
        if name is None:
            for ports in (network.API_SILENT, network.API_REFUSED):
                network.restore(ports, str(API_PORT))
        else:
            network.restore(network.NO_API, network.link_element(self.node(name).link))

    @fault(
        "throttle",
        help="answer nodes' calls to AWS's API with throttling errors",
        report="throttled {target}",
        arguments=Arguments.API_REQUESTS,
        node_count=0,
        plan_options=("fraction", "seed"),
    )
    def throttle(
        self, service: str | None = None, *, fraction: float = 1.0, name: str | None = None, seed: int = 0
    ) -> None:
        """Answer a fraction of the nodes' requests to a service, or to all, with the service's throttling error."""
        api.add_fault(self._run_dir, self._api_fault("throttle", service, fraction=fraction, name=name, seed=seed))

    @undoes("throttle")
    def end_throttle(self, service: str | None = None, *, name: str | None = None) -> None:
        """Stop throttling the requests of all nodes, or of one, to a service or to all."""
        api.remove_fault(self._run_dir, self._api_fault("throttle", service, name=name))

    @fault(
        "api-errors",
        help="answer nodes' calls to AWS's API with internal errors (HTTP 500)",
        report="injected HTTP 500 errors into {target}",
        arguments=Arguments.API_REQUESTS,
        node_count=0,
        plan_options=("fraction", "seed"),
    )
    def api_errors(
        self, service: str | None = None, *, fraction: float = 1.0, name: str | None = None, seed: int = 0
    ) -> None:
        """Answer a fraction of the nodes' requests to a service, or to all, with its internal error (HTTP 500)."""
        api.add_fault(self._run_dir, self._api_fault("error", service, fraction=fraction, name=name, seed=seed))

    @undoes("api-errors")
    def end_api_errors(self, service: str | None = None, *, name: str | None = None) -> None:
        """Stop the internal errors for all nodes, or for one, of a service or of all."""
        api.remove_fault(self._run_dir, self._api_fault("error", service, name=name))

    def _api_fault(
        self, kind: ApiFaultKind, service: str | None, *, name: str | None, fraction: float = 1.0, seed: int = 0
    ) -> ApiFault:
        instance_id = None if name is None else self.node(name).instance_id
        return ApiFault(kind=kind, service=service, instance_id=instance_id, fraction=fraction, seed=seed)

    # ---- shared storage ----

    @fault(
        "storage-outage",
        help="take the mount targets of all file systems away, or slow them down",
        report="took the mount targets away",
        arguments=Arguments.MOUNT_DELAY,
        in_random_plans=False,
    )
    def storage_outage(self, *, slow_s: float | None = None) -> None:
        """Remove the mount targets of all file systems, or delay their answers."""
        StorageFaults(absent=slow_s is None, slow_s=slow_s or 0.0).write(self._run_dir)

    @undoes("storage-outage")
    def end_storage_outage(self) -> None:
        """Restore the mount targets; the data plane notices within a second."""
        StorageFaults().write(self._run_dir)

    # ---- everything ----

    def undo_all(self) -> None:
        """Undo everything that can be undone; dead and rebooted nodes stay so, and notices remain in force."""
        network.restore_all()
        api.remove_all_faults(self._run_dir)
        limits.lift_limits(self._run_dir)
        self.end_storage_outage()
        for node in all_nodes(self._run_dir):
            host.thaw(node)
            disk.free(node)
