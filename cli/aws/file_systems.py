"""Find the EFS file systems that clusters created, with their cost and their users."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from bootstrap.contract import CLUSTER_TAG, SHARED_STORAGE_OUTPUT
from cli.aws.clients import Clients
from cli.errors import ClusterError
from stacks.prices.price_list import PriceList

GB: Final = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSystem:
    """A file system that a cluster created."""

    file_system_id: str
    cluster: str
    """Name of the cluster that created it."""
    size: int
    """Size in bytes, as EFS metered it in the last hours."""
    mount_targets: int
    used_by: str
    """Name of the stack that currently mounts it; empty if none does."""

    @property
    def gb(self) -> float:
        """Return the size in gigabytes."""
        return self.size / GB

    def usd_per_month(self, prices: PriceList) -> float:
        """Return the price of its storage."""
        return self.gb * prices.efs_gb_month


def metered_gb(clients: Clients, file_system_id: str) -> float:
    """Return the size of a file system, as EFS metered it in the last hours."""
    [found] = clients.efs.describe_file_systems(FileSystemId=file_system_id)["FileSystems"]
    return float(found["SizeInBytes"]["Value"]) / GB


def made_file_systems(clients: Clients) -> list[FileSystem]:
    """Return every file system with a cluster's tag."""
    used = dict(_used(clients))
    pages = clients.efs.get_paginator("describe_file_systems").paginate()
    file_systems = [_file_system(system, used) for page in pages for system in page["FileSystems"]]
    return [system for system in file_systems if system.cluster]


def find_file_system(clients: Clients, file_system_id: str) -> FileSystem:
    """Return one file system. Raises ClusterError if it does not exist or no cluster created it."""
    try:
        [system] = clients.efs.describe_file_systems(FileSystemId=file_system_id)["FileSystems"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "FileSystemNotFound":
            raise
        raise ClusterError(f"no file system {file_system_id} in {clients.region}") from error
    file_system = _file_system(system, dict(_used(clients)))
    if not file_system.cluster:
        raise ClusterError(f"{file_system_id} has no tag {CLUSTER_TAG}: no cluster made it, delete it with aws efs")
    return file_system


def _file_system(system: Any, used: dict[str, str]) -> FileSystem:
    tags = {tag["Key"]: tag["Value"] for tag in system.get("Tags", [])}
    return FileSystem(
        file_system_id=system["FileSystemId"],
        cluster=tags.get(CLUSTER_TAG, ""),
        size=system["SizeInBytes"]["Value"],
        mount_targets=system["NumberOfMountTargets"],
        used_by=used.get(system["FileSystemId"], ""),
    )


def _used(clients: Clients) -> Iterator[tuple[str, str]]:
    """Yield each file system that the outputs of a stack name, with the stack."""
    for page in clients.cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            for output in stack.get("Outputs", []):
                if output.get("OutputKey") == SHARED_STORAGE_OUTPUT:
                    yield output["OutputValue"], stack["StackName"]
