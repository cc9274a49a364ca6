"""Write the limits of EC2, the capacities of its zones and the account's quotas, for local/control_plane/limits."""

from pathlib import Path

from local.control_plane.limits.limit_files import (
    CAPACITY_FILE,
    QUOTA_FILE,
    Capacity,
    CapacityPool,
    read_capacities,
    read_quotas,
    write_capacities,
    write_quotas,
)


def limit_capacity(run_dir: Path, instance_type: str, zone: str, count: int | None, *, spot: bool = False) -> None:
    """Limit a zone's capacity for a type, running instances included; None lifts the limit."""
    file = run_dir / CAPACITY_FILE
    pool = CapacityPool(instance_type=instance_type, zone=zone, spot=spot)
    others = [capacity for capacity in read_capacities(file) if capacity.pool != pool]
    new = [] if count is None else [Capacity(instance_type=instance_type, zone=zone, count=count, spot=spot)]
    write_capacities(file, [*others, *new])


def set_quota(run_dir: Path, quota: str, limit: int | None) -> None:
    """Set a quota by its name in QUOTAS; None lifts it."""
    file = run_dir / QUOTA_FILE
    others = {name: count for name, count in read_quotas(file).items() if name != quota}
    write_quotas(file, others if limit is None else others | {quota: limit})


def lift_limits(run_dir: Path) -> None:
    """Lift all limits."""
    for name in (CAPACITY_FILE, QUOTA_FILE):
        (run_dir / name).unlink(missing_ok=True)
