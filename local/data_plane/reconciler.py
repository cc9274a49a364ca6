"""Run a container for each EC2 instance, and keep the containers in step with the control plane.

Level-triggered: each pass starts, stops and connects nodes until they match the inventory, which is reread when the
control plane signals a change, and occasionally otherwise.
"""

import dataclasses
import logging
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from local.data_plane import launch_failures
from local.data_plane.account import AccountReader
from local.data_plane.errors import RECONCILIATION, DataPlaneErrors
from local.data_plane.launch_failures import BOOT_TIMEOUT_S, START_TIMEOUT_S
from local.data_plane.vpcs import Vpcs
from local.errors import LocalError
from local.node import metadata, reboots, spot_notices
from local.node.container import REBOOT_CODE, Node, destroy_node, is_frozen, request_reboot, restart_node, start_node
from local.node.disks import ami_layers, take_requested_images
from local.node.inotify_limit import inotify_shortage
from local.node.inventory import (
    Instance,
    Inventory,
    read_gpu_models,
    read_inventory,
    read_user_data,
)
from local.node.status_checks import StatusChecks
from local.storage.exports import Exports
from local.storage.mount_targets import StorageFaults, read_mount_targets

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)
MAX_BOOTING = 8
"""Number of nodes that boot simultaneously; on two cores, more would only make every node boot later."""


class Reconciler:
    """Keeps nodes, by instance id, and their VPCs equal to an inventory."""

    def __init__(self, session: boto3.Session, *, run_dir: Path, cgroup: Path, layers: list[Path]) -> None:
        self._ec2: EC2Client = session.client("ec2")
        self._autoscaling: AutoScalingClient = session.client("autoscaling")
        self._efs: Any = session.client("efs")
        self._fsx: Any = session.client("fsx")
        self._account = AccountReader(session)
        self._run_dir = run_dir
        self._nodes_dir = run_dir / "nodes"
        self._cgroup = cgroup
        self._layers = layers
        self._nodes: dict[str, Node] = {}
        self._metadata: dict[tuple[str, str], metadata.Metadata] = {}
        self._exports = Exports(run_dir)
        self._vpcs = Vpcs(self.find_metadata, self._exports)
        self._storage_faults = StorageFaults()
        self._inventory: Inventory | None = None
        self._reboot_requested: set[str] = set()
        self._status_checks = StatusChecks()
        self._launches = launch_failures.Launches()
        self._errors = DataPlaneErrors(run_dir)

    def find_metadata(self, vpc_id: str, address: str) -> metadata.Metadata | None:
        """Return the metadata of the instance that has a private address in a VPC."""
        return self._metadata.get((vpc_id, address))

    def reconcile(self, *, reread: bool = True) -> None:
        """Run one pass; an instance that cannot be updated now does not delay the others.

        ``reread`` requests reading the inventory again; otherwise the last one is still valid.
        """
        with self._errors.recorded(RECONCILIATION):
            inventory = self._inventory
            if inventory is None or reread or self._is_outdated():
                inventory = self._read_inventory()
            self._reconcile(inventory)
        self._errors.end_pass()

    def _is_outdated(self) -> bool:
        return self._storage_faults != StorageFaults.read(self._run_dir)

    def _read_inventory(self) -> Inventory:
        self._inventory = None  # Until the complete inventory can be read, each pass tries again.
        inventory = read_inventory(self._ec2, self._autoscaling)
        self._storage_faults = StorageFaults.read(self._run_dir)
        targets = read_mount_targets(self._efs, self._fsx, self._ec2, faults=self._storage_faults)
        inventory = dataclasses.replace(inventory, mount_targets=targets)
        self._inventory = None if inventory.unreadable else inventory
        return inventory

    def _reconcile(self, inventory: Inventory) -> None:
        desired = {instance.instance_id: instance for instance in inventory.instances}
        for instance_id in self._nodes.keys() - desired.keys() - inventory.unreadable:
            self._stop(instance_id)
        self._vpcs.reconcile(inventory, occupied={node.instance.vpc_id for node in self._nodes.values()})
        for instance_id, instance in desired.items():
            with self._errors.recorded(instance_id):
                if instance_id in self._nodes:
                    self._update(instance)
                elif self._may_boot_another():
                    self._launches.begin_attempt(instance_id)
                    self._start(instance)
        launched = {instance_id for instance_id, node in self._nodes.items() if node.has_requested_metadata()}
        self._launches.forget_others(desired.keys() - launched)
        for instance_id, node in list(self._nodes.items()):
            with self._errors.recorded(instance_id):
                self._handle_exit(node)
                self._apply_requests(node)
                self._check_status(node)

    def _count_booting(self) -> int:
        """Return the number of nodes whose cloud-init has not finished."""
        return sum(
            not (node.disk / f"var/lib/cloud/instances/{instance_id}/boot-finished").exists()
            for instance_id, node in self._nodes.items()
        )

    def _may_boot_another(self) -> bool:
        """Return True if one more node may boot, counting what the booting nodes have not yet taken."""
        booting = self._count_booting()
        return booting < MAX_BOOTING and inotify_shortage(booting + 1) is None

    def _build_metadata(self, instance: Instance) -> metadata.Metadata:
        role = self._account.role(instance.profile_arn)
        role_arn = str(role["Arn"]) if role else ""
        return metadata.Metadata(
            instance=instance,
            user_data=read_user_data(self._ec2, instance.instance_id),
            public_key=self._account.public_key(instance.key_name),
            account=self._account.account,
            region=self._account.region,
            role_name=role["RoleName"] if role else None,
            credentials=lambda: self._account.credentials(role_arn, instance.instance_id),
            spot_notices=self._run_dir / spot_notices.DIRECTORY / instance.instance_id,
        )

    def _start(self, instance: Instance) -> None:
        self._metadata[_address_key(instance)] = self._build_metadata(instance)
        gpu_models = read_gpu_models(self._ec2, instance.instance_type)
        try:
            self._nodes[instance.instance_id] = start_node(
                instance,
                nodes_dir=self._nodes_dir,
                cgroup=self._cgroup,
                layers=ami_layers(self._run_dir, instance.image_id, base=self._layers),
                gpu_models=gpu_models,
                authority=self._exports.authority,
            )
        except (LocalError, OSError, subprocess.SubprocessError) as error:
            self._record_launch_failure(instance.instance_id, str(error), after=START_TIMEOUT_S)
            raise LocalError(str(error)) from error
        log.info("%s starts at %s", instance.instance_id, instance.address.ip)

    def _update(self, instance: Instance) -> None:
        """Update what may change while an instance runs: addresses, groups, role, and the state that its group wants.

        The role may be missing at first, because the instance profile is associated shortly after the launch.
        """
        key = _address_key(instance)
        known = self._metadata[key]
        if known.instance.profile_arn != instance.profile_arn:
            self._metadata[key] = self._build_metadata(instance)
        elif known.instance != instance:
            self._metadata[key] = dataclasses.replace(known, instance=instance)

    def _stop(self, instance_id: str) -> None:
        node = self._nodes.pop(instance_id)
        self._metadata.pop(_address_key(node.instance), None)
        destroy_node(node)
        self._forget_reboot(instance_id)
        spot_notices.forget(self._run_dir, instance_id)
        self._status_checks.forget(instance_id)
        log.info("%s is gone", instance_id)

    def _handle_exit(self, node: Node) -> None:
        """Restart a node that reboots; terminate one that powered off or cannot boot."""
        code, instance_id = node.exit_code(), node.instance.instance_id
        if code == REBOOT_CODE:
            log.info("%s reboots", instance_id)
            self._restart(node)
        elif code is not None and code > 0 and not node.has_requested_metadata():
            reason = f"its container ended ({code}): {node.last_console_line()}"
            self._record_launch_failure(instance_id, reason, after=START_TIMEOUT_S)
            raise LocalError(reason)
        elif code is not None:
            log.warning("%s powered off (%d)", instance_id, code)
            self._ec2.terminate_instances(InstanceIds=[instance_id])
        else:
            self._check_boot_timeout(node)

    def _check_boot_timeout(self, node: Node) -> None:
        """Terminate a node that takes too long to request its metadata; a frozen one cannot."""
        instance_id = node.instance.instance_id
        if self._launches.takes_longer_than(instance_id, BOOT_TIMEOUT_S) and not is_frozen(node.cgroup):
            reason = f"it has not requested its metadata in {BOOT_TIMEOUT_S:.0f} s: {node.last_console_line()}"
            self._record_launch_failure(instance_id, reason, after=BOOT_TIMEOUT_S)
            raise LocalError(reason)

    def _record_launch_failure(self, instance_id: str, reason: str, *, after: float) -> None:
        """Record why an instance cannot boot; terminate it if that lasts too long."""
        self._launches.record_failed_attempt(instance_id, reason)
        if self._launches.takes_longer_than(instance_id, after):
            launch_failures.write_failure(self._run_dir, instance_id, reason)
            log.error("%s does not boot and is terminated: %s", instance_id, reason)
            self._ec2.terminate_instances(InstanceIds=[instance_id])

    def _restart(self, node: Node) -> None:
        self._forget_reboot(node.instance.instance_id)
        restart_node(node, layers=ami_layers(self._run_dir, node.instance.image_id, base=self._layers))

    def _forget_reboot(self, instance_id: str) -> None:
        self._reboot_requested.discard(instance_id)
        reboots.clear_request(self._run_dir, instance_id)

    def _apply_requests(self, node: Node) -> None:
        """Apply requested images and reboots, and announced interruptions."""
        instance_id = node.instance.instance_id
        take_requested_images(self._run_dir, instance_id, disk=node.disk)
        waited = reboots.seconds_since_request(self._run_dir, instance_id)
        if waited is not None and instance_id not in self._reboot_requested and request_reboot(node):
            self._reboot_requested.add(instance_id)
        if waited is not None and waited > reboots.HARD_REBOOT_S:
            log.warning("%s did not shut down in time; power-cycling it", instance_id)
            self._restart(node)
        ends_at = spot_notices.interruption_time(self._run_dir, instance_id)
        if ends_at is not None and ends_at <= datetime.now(timezone.utc):
            log.info("%s is interrupted, as announced", instance_id)
            self._ec2.terminate_instances(InstanceIds=[instance_id])

    def _check_status(self, node: Node) -> None:
        """Report an instance that hangs as unhealthy, so that its group replaces it."""
        instance_id = node.instance.instance_id
        if self._status_checks.newly_failed(instance_id, hangs=is_frozen(node.cgroup)):
            log.warning("%s fails its instance status check", instance_id)
            self._autoscaling.set_instance_health(InstanceId=instance_id, HealthStatus="Unhealthy")


def _address_key(instance: Instance) -> tuple[str, str]:
    """Key a running instance by VPC and address: several VPCs may use the same private address."""
    return instance.vpc_id, str(instance.address.ip)
