"""Read the mount targets of EFS and the file systems of FSx for Lustre, as data for the firewall and the servers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local.storage.file_system_policy import admits

FAULTS_FILE: Final = "storage-faults.json"
"""File in the run's directory with the faults of mount targets."""
REACHABLE: Final = "available"


@dataclass(frozen=True, kw_only=True, slots=True)
class MountTarget:
    """An address in a VPC at which a file system can be mounted: a mount target of EFS, or the servers of Lustre."""

    file_system: str
    host: str
    """Name that the VPC's name server resolves to the address."""
    address: str
    vpc_id: str
    group_ids: tuple[str, ...]
    admits_tls: bool = True
    """True if a client without IAM may mount with TLS, according to the EFS file system's policy."""
    admits_plaintext: bool = True
    """True if a client without IAM may mount without TLS."""
    slow_s: float = 0.0
    """Seconds by which a fault delays its answers."""
    mount_name: str = ""
    """Lustre's name of the file system; empty for EFS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageFaults:
    """Faults of all mount targets: they are absent, or slow by some seconds."""

    absent: bool = False
    slow_s: float = 0.0

    @classmethod
    def read(cls, run_dir: Path) -> "StorageFaults":
        """Return the faults in force; none if none were written."""
        try:
            return cls(**json.loads((run_dir / FAULTS_FILE).read_text()))
        except FileNotFoundError:
            return cls()

    def write(self, run_dir: Path) -> None:
        """Put the faults in force atomically, replacing earlier ones."""
        fresh = run_dir / f"{FAULTS_FILE}.new"
        fresh.write_text(json.dumps({"absent": self.absent, "slow_s": self.slow_s}))
        fresh.replace(run_dir / FAULTS_FILE)


def read_mount_targets(efs: Any, fsx: Any, ec2: Any, *, faults: StorageFaults) -> tuple[MountTarget, ...]:
    """Return the mount targets of EFS and the file systems of Lustre that can currently be reached."""
    return () if faults.absent else (*_efs(efs, faults), *_lustre(fsx, ec2, faults))


def _lustre(fsx: Any, ec2: Any, faults: StorageFaults) -> Iterator[MountTarget]:
    for system in fsx.describe_file_systems()["FileSystems"]:
        if system["FileSystemType"] != "LUSTRE" or system["Lifecycle"] != "AVAILABLE":
            continue
        description = ec2.describe_network_interfaces(NetworkInterfaceIds=system["NetworkInterfaceIds"])
        [interface] = description["NetworkInterfaces"]
        yield MountTarget(
            file_system=system["FileSystemId"],
            host=system["DNSName"],
            address=interface["PrivateIpAddress"],
            vpc_id=system["VpcId"],
            group_ids=tuple(sorted(group["GroupId"] for group in interface["Groups"])),
            slow_s=faults.slow_s,
            mount_name=system["LustreConfiguration"]["MountName"],
        )


def _efs(efs: Any, faults: StorageFaults) -> Iterator[MountTarget]:
    for system in efs.describe_file_systems()["FileSystems"]:
        if system["LifeCycleState"] != REACHABLE or not system["NumberOfMountTargets"]:
            continue
        file_system = system["FileSystemId"]
        admitted = _admitted(efs, system)
        for target in efs.describe_mount_targets(FileSystemId=file_system)["MountTargets"]:
            groups = efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])
            yield MountTarget(
                file_system=file_system,
                host=f"{file_system}.efs.{efs.meta.region_name}.amazonaws.com",
                address=target["IpAddress"],
                vpc_id=target["VpcId"],
                group_ids=tuple(sorted(groups["SecurityGroups"])),
                admits_tls=admitted[True],
                admits_plaintext=admitted[False],
                slow_s=faults.slow_s,
            )


def _admitted(efs: Any, system: Mapping[str, Any]) -> dict[bool, bool]:
    """Return whether a client without IAM may mount a file system, by whether it uses TLS."""
    try:
        policy = json.loads(efs.describe_file_system_policy(FileSystemId=system["FileSystemId"])["Policy"])
    except efs.exceptions.PolicyNotFound:
        return {True: True, False: True}
    return {encrypted: admits(policy, system["FileSystemArn"], encrypted=encrypted) for encrypted in (True, False)}
