"""Read the GPU instance types in gpu_types.json, which ``python -m cli.catalog.refresh`` writes.

The figures are EC2's own (DescribeInstanceTypes). Their prices are in stacks/prices/price_list.json.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CATALOG_FILE: Final = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceType:
    """The properties of an instance type that the product uses."""

    name: str
    vcpus: int
    memory_gib: int | None = None
    """Memory in GiB; None for CPU types, whose memory nothing here uses."""
    gpus: int = 0
    gpu_model: str | None = None
    gpu_mib: int = 0
    """Memory of each GPU, in MiB."""
    gpu_fraction: float = 1
    """Fraction of a GPU that the type has; 1 for complete ones."""
    network: str | None = None
    """Total bandwidth of all network cards, in EC2's words."""
    network_cards: int = 1
    efa_interfaces: int = 0
    """Number of interfaces for the Elastic Fabric Adapter, one per network card; 0 if the type has none."""
    first_efa_card: int = 0
    """Index of the first network card with the Elastic Fabric Adapter; all cards after it have one too."""
    nvme_disks: int = 0
    nvme_gb: int = 0
    """Size of each NVMe disk, in GB."""
    capacity_block: bool = False
    """True if EC2 sells the type in Capacity Blocks."""
    arm: bool = False
    successor: str | None = None
    """Nearest type on sale; None if this one still is on sale."""

    @property
    def family(self) -> str:
        """Return the instance family, such as ``g6`` of ``g6.xlarge``."""
        return self.name.partition(".")[0]

    @property
    def sold(self) -> bool:
        """Return True if the type is still on sale everywhere."""
        return self.successor is None

    @property
    def needs_ami(self) -> bool:
        """Return True if no Deep Learning AMI for x86_64 supports the type."""
        return self.arm or self.gpu_fraction < 1 or self.successor is not None


def read(path: Path = CATALOG_FILE) -> Mapping[str, InstanceType]:
    """Return the GPU instance types by name."""
    rows: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text())["types"]
    return {name: InstanceType(name=name, **row) for name, row in rows.items()}


GPU_TYPES: Final[Mapping[str, InstanceType]] = read()
