"""Boot an instance as a container that runs systemd, with its own disk, address and power switch."""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local.network import vpc_network
from local.node import nvidia_smi
from local.node.disks import create_disk, unmount_disk
from local.node.inventory import Instance
from local.storage.certificates import Authority
from local.storage.client_install import EXPORTS, install_storage_client

log = logging.getLogger(__name__)
BOOT = Path(__file__).with_name("boot.sh")
KEPT_LOGS = ("console.log", "disk/upper/var/log/cloud-init.log", "disk/upper/var/log/cloud-init-output.log")
"""Logs in a node's directory: those of the container, and of cloud-init, which includes user data's output."""
REBOOT_CODE = 133
"""Exit code of systemd-nspawn when the system inside requests a reboot."""
KILL_TIMEOUT_S = 20.0
EFA_DEVICES = "run/local-aws/infiniband"
"""Directory with a node's simulated Elastic Fabric Adapters; its processes see it as /sys/class/infiniband."""
EFA_COUNT_FILE = "usr/share/local-aws/efa"
"""File with the number of adapters with which the node was launched; a disk made from another node's has its number."""
EFA_SERVICE = "local-efa.service"
EFA_UNIT = """\
[Unit]
Description=Simulated Elastic Fabric Adapters
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -eu /usr/share/local-aws/show-efa
"""
EFA_SCRIPT = f"""\
# Nothing can be created in /sys: an overlay gives /sys/class one more directory, on which the devices are mounted.
mkdir -p /{EFA_DEVICES} /run/local-aws/class/infiniband
count=$(cat /{EFA_COUNT_FILE})
while [ "$count" -gt 0 ]; do
    count=$((count - 1))
    mkdir -p /{EFA_DEVICES}/rdmap${{count}}s6/device
    ln -s /sys/bus/pci/drivers/efa /{EFA_DEVICES}/rdmap${{count}}s6/device/driver
done
mount -t overlay -o lowerdir=/run/local-aws/class:/sys/class overlay /sys/class
mount --bind /{EFA_DEVICES} /sys/class/infiniband
"""
SYSTEMD_REBOOT = signal.SIGRTMIN + 5
"""systemd(1), "Signals"."""


def host_name(instance: Instance) -> str:
    """Return an instance's IP-based name ("Amazon EC2 instance hostname types")."""
    return "ip-" + str(instance.address.ip).replace(".", "-")


@dataclass(kw_only=True, slots=True)
class Node:
    """A node that the data plane has booted and whose container it owns.

    ``directory`` contains its disk and its console log, ``cgroup`` all its processes.
    """

    instance: Instance
    directory: Path
    cgroup: Path
    process: subprocess.Popen[bytes]

    @property
    def disk(self) -> Path:
        """Return the directory with everything that the node has written, as seen from outside."""
        return self.directory / "disk/upper"

    def has_requested_metadata(self) -> bool:
        """Return True if its cloud-init has requested the metadata; from then on, the node reports for itself."""
        return (self.disk / "var/lib/cloud/instances" / self.instance.instance_id).exists()

    def last_console_line(self) -> str:
        """Return the last line on its console."""
        try:
            lines = (self.directory / "console.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "nothing on its console"

    def exit_code(self) -> int | None:
        """Return the exit code of the node's container; None while it runs."""
        return self.process.poll()


def is_frozen(cgroup: Path) -> bool:
    """Return True if a node is frozen, so that none of its processes runs until it is thawed."""
    try:
        return "frozen 1" in (cgroup / "cgroup.events").read_text()
    except OSError:  # it has ended or not started
        return False


def _boot(instance: Instance, *, directory: Path, cgroup: Path, layers: list[Path]) -> subprocess.Popen[bytes]:
    stacked = ":".join(map(str, layers))
    exports = directory.parents[1] / EXPORTS
    exports.mkdir(mode=0o700, exist_ok=True)
    command = [str(BOOT), instance.instance_id, host_name(instance), str(directory), str(cgroup), stacked, str(exports)]
    with (directory / "console.log").open("ab") as console:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, start_new_session=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip


def install_simulated_nvidia_smi(disk: Path, *, instance_id: str, models: Sequence[str]) -> None:
    """Install a simulated nvidia-smi, with which software counts GPUs, and the list that it prints."""
    uuids = (uuid.uuid5(uuid.NAMESPACE_OID, f"{instance_id}/{index}") for index in range(len(models)))
    lines = [f"NVIDIA {model}\tGPU-{gpu_uuid}\n" for model, gpu_uuid in zip(models, uuids, strict=True)]
    listing, command = disk / nvidia_smi.GPU_LIST_FILE, disk / "usr/bin/nvidia-smi"
    for directory in (listing.parent, command.parent):
        directory.mkdir(parents=True, exist_ok=True)
    listing.write_text("".join(lines))
    shutil.copyfile(nvidia_smi.__file__, command)
    command.chmod(0o755)


def install_simulated_efa(disk: Path, *, count: int) -> None:
    """Make the node show directories as Elastic Fabric Adapters, which nothing can use, to all its processes.

    Removing a directory in the running node's EFA_DEVICES takes the adapter away.
    """
    units, listing = disk / "etc/systemd/system", disk / EFA_COUNT_FILE
    listing.parent.mkdir(parents=True, exist_ok=True)
    # Write the count even if it is 0: a disk copied from a node with adapters contains the unit, which reads it.
    listing.write_text(f"{count}\n")
    if count == 0:
        return
    link = units / "sysinit.target.wants" / EFA_SERVICE
    link.parent.mkdir(parents=True, exist_ok=True)
    listing.with_name("show-efa").write_text(EFA_SCRIPT)
    (units / EFA_SERVICE).write_text(EFA_UNIT)
    link.symlink_to(f"../{EFA_SERVICE}")


def start_node(
    instance: Instance,
    *,
    nodes_dir: Path,
    cgroup: Path,
    layers: list[Path],
    authority: Authority,
    gpu_models: Sequence[str] = (),
) -> Node:
    """Connect a new node to the network and switch it on."""
    directory = nodes_dir / instance.instance_id
    directory.mkdir(parents=True)
    try:
        disk = create_disk(directory)
        if gpu_models:
            install_simulated_nvidia_smi(disk, instance_id=instance.instance_id, models=gpu_models)
        install_simulated_efa(disk, count=sum(interface.has_efa for interface in instance.interfaces))
        install_storage_client(disk, authority=authority)
        vpc_network.create_node_namespace(instance.instance_id, instance.address, vpc_id=instance.vpc_id)
        node_cgroup = cgroup / instance.instance_id
        process = _boot(instance, directory=directory, cgroup=node_cgroup, layers=layers)
    except BaseException:
        _clean_up(instance.instance_id, directory)
        raise
    return Node(instance=instance, directory=directory, cgroup=node_cgroup, process=process)


def restart_node(node: Node, *, layers: list[Path]) -> None:
    """Switch a node on again with its old disk."""
    power_off(node)
    node.process = _boot(node.instance, directory=node.directory, cgroup=node.cgroup, layers=layers)


def request_reboot(node: Node) -> bool:
    """Ask the node's systemd to reboot; return False if no systemd runs."""
    init = init_process(node.cgroup)
    if init is None:
        return False
    try:
        os.kill(init, SYSTEMD_REBOOT)
    except ProcessLookupError:  # it has shut down in the meantime
        return False
    return True


def init_process(cgroup: Path) -> int | None:
    """Return the process id, in this namespace, of a node's systemd; None if it is not running."""
    try:
        processes = (cgroup / "payload/init.scope/cgroup.procs").read_text().split()
    except OSError:
        return None
    return int(processes[0]) if processes else None


def power_off(node: Node) -> None:
    """Cut the power: end every process of the node abruptly."""
    if node.cgroup.exists():
        (node.cgroup / "cgroup.kill").write_text("1")
    node.process.wait(timeout=KILL_TIMEOUT_S)
    _remove_cgroup(node.cgroup)


def _remove_cgroup(cgroup: Path) -> None:
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while cgroup.exists():
        try:
            for directory, _, _ in os.walk(cgroup, topdown=False):
                Path(directory).rmdir()
        except OSError as error:  # busy until its last process is gone
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {KILL_TIMEOUT_S:.0f} s for {cgroup} to be empty: {error}") from None
            time.sleep(0.02)


def save_start_logs(directory: Path, target: Path) -> None:
    """Copy the logs that show why a node did not start, to keep them after the node is gone."""
    for name in KEPT_LOGS:
        with contextlib.suppress(OSError):
            shutil.copy(directory / name, target / f"{directory.name}.{Path(name).name}")


def destroy_node(node: Node) -> None:
    """Cut the power, disconnect the network, delete the disk. The logs of the node's start are kept."""
    power_off(node)
    _clean_up(node.instance.instance_id, node.directory)


def _clean_up(instance_id: str, directory: Path) -> None:
    vpc_network.delete_node_namespace(instance_id)
    save_start_logs(directory, directory.parents[1] / "log")
    unmount_disk(directory)
    shutil.rmtree(directory)
