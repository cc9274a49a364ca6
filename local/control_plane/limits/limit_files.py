"""Read and write the limits of the local AWS: instance capacity per zone, and service quotas.

Both are files in the run directory. The control plane reads them at each launch, so a change takes effect immediately.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

CAPACITY_FILE: Final = "capacity.json"
QUOTA_FILE: Final = "quotas.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityPool:
    """A capacity pool of EC2: the instances of a type in a zone, on demand or spot."""

    instance_type: str
    zone: str
    spot: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Number of instances of a type for which a zone has capacity, including running ones."""

    instance_type: str
    zone: str
    count: int
    spot: bool = False

    @property
    def pool(self) -> CapacityPool:
        return CapacityPool(instance_type=self.instance_type, zone=self.zone, spot=self.spot)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """A quota in the terms of Service Quotas: of the vCPUs of families of types, or of something else."""

    code: str
    title: str
    service: str = "ec2"
    families: tuple[str, ...] = ()
    """Families whose vCPUs the quota counts; empty if it counts no vCPUs."""
    spot: bool = False


ELASTIC_IPS: Final = "elastic-ips"
VPCS: Final = "vpcs"
_STANDARD: Final = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_G: Final = ("g", "gr", "vt")
QUOTAS: Final[Mapping[str, Quota]] = {
    "standard": Quota(
        code="L-1216C47A",
        title="Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        families=_STANDARD,
    ),
    "g": Quota(code="L-DB2E81BA", title="Running On-Demand G and VT instances", families=_G),
    "p": Quota(code="L-417A185B", title="Running On-Demand P instances", families=("p",)),
    "spot-standard": Quota(
        code="L-34B43A08",
        title="All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        families=_STANDARD,
        spot=True,
    ),
    "spot-g": Quota(code="L-3819A6DF", title="All G and VT Spot Instance Requests", families=_G, spot=True),
    "spot-p": Quota(code="L-7212CCBC", title="All P Spot Instance Requests", families=("p",), spot=True),
    ELASTIC_IPS: Quota(code="L-0263D0A3", title="EC2-VPC Elastic IPs"),
    VPCS: Quota(code="L-F678F1CE", title="VPCs per Region", service="vpc"),
}
"""Quotas by the names that ``local-aws quota`` accepts."""


def read_capacities(path: Path | None) -> tuple[Capacity, ...]:
    """Return the limits of zones; none without a file."""
    try:
        return tuple(Capacity(**entry) for entry in json.loads(path.read_text())) if path else ()
    except FileNotFoundError:
        return ()


def write_capacities(path: Path, capacities: Iterable[Capacity]) -> None:
    """Replace all limits of zones atomically."""
    _write(path, [asdict(capacity) for capacity in capacities])


def read_quotas(path: Path | None) -> dict[str, int]:
    """Return the limits by quota name; none without a file."""
    try:
        limits: dict[str, int] = json.loads(path.read_text()) if path else {}
    except FileNotFoundError:
        return {}
    return limits


def write_quotas(path: Path, limits: Mapping[str, int]) -> None:
    """Replace all quotas atomically."""
    _write(path, dict(limits))


def _write(path: Path, document: object) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(document))
    partial.rename(path)
