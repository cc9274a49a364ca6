"""Describe the file system to mount: its host name, its port and the mount command.

EFS serves NFS 4.1 on port 2049, through TLS if the client starts it. The tunnel (tunnel.py) does, and the kernel's NFS
client connects to the tunnel on this node's loopback address. The instance itself encrypts Lustre's traffic.
"""

from dataclasses import dataclass
from typing import Final

from bootstrap.cluster.record_validation import SHARED_STORAGE, RecordError, check_shared_storage
from bootstrap.contract import SHARED_DIR

NFS_PORT: Final = 2049
LUSTRE_PORT: Final = 988
TUNNEL_ADDRESS: Final = "127.0.0.1"
TUNNEL_PORT: Final = 20490
"""Port of the tunnel; fixed, so that a restarted tunnel serves an existing mount."""
DNS_SUFFIXES: Final = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
}
"""Ends of AWS's host names other than amazonaws.com, by the beginning of a region's name (botocore,
partitions.json)."""
_SAFE: Final = "nosuid,nodev"
"""Every node's root writes to the file system, so no file there may let a user of another node become root."""
_NFS: Final = "vers=4.1,proto=tcp,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2"
"""AWS's options for EFS ("Recommended NFS mount options", Amazon EFS User Guide) except ``noresvport``: the tunnel
admits only root, which it recognizes by the reserved port."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageTarget:
    """A file system that nodes mount."""

    kind: str
    """``efs`` or ``lustre``."""
    file_system: str
    """ID of the file system."""
    host: str
    """Name that AWS's name servers resolve to the address in the node's zone."""
    mount_name: str = ""
    """Lustre's name of the file system."""

    @classmethod
    def parse(cls, text: str, *, region: str) -> "StorageTarget | None":
        """Parse contract.SHARED_STORAGE_FIELD's value; None for an empty one. Raises RecordError."""
        match = SHARED_STORAGE.fullmatch(check_shared_storage(text))
        if match is None:
            return None
        kind, file_system, mount_name = match.groups(default="")
        service = "efs" if kind == "efs" else "fsx"
        host = f"{file_system}.{service}.{region}.{_dns_suffix(region)}"
        return cls(kind=kind, file_system=file_system, host=host, mount_name=mount_name)

    @property
    def is_efs(self) -> bool:
        return self.kind == "efs"

    @property
    def port(self) -> int:
        """Port of the file system's service."""
        return NFS_PORT if self.is_efs else LUSTRE_PORT

    @property
    def mount_command(self) -> list[str]:
        """Return the command that mounts it.

        ``addr`` is for the kernel, because an image may lack NFS's mount helper.
        """
        if self.is_efs:
            options = f"{_NFS},addr={TUNNEL_ADDRESS},port={TUNNEL_PORT},{_SAFE}"
            return ["mount", "-t", "nfs4", "-o", options, f"{TUNNEL_ADDRESS}:/", SHARED_DIR]
        source = f"{self.host}@tcp:/{self.mount_name}"
        return ["mount", "-t", "lustre", "-o", f"noatime,flock,{_SAFE}", source, SHARED_DIR]


def _dns_suffix(region: str) -> str:
    return next((suffix for prefix, suffix in DNS_SUFFIXES.items() if region.startswith(prefix)), "amazonaws.com")


def parse_or_none(text: str, *, region: str) -> StorageTarget | None:
    """Return the target; None if the text does not name one."""
    try:
        return StorageTarget.parse(text.strip(), region=region)
    except RecordError:
        return None
