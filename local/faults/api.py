"""Write the faults that the control plane (control_plane/api_faults.py) injects into requests from nodes."""

from dataclasses import replace
from pathlib import Path

from local.control_plane.api_faults import FILE, ApiFault, read_faults, write_faults


def add_fault(run_dir: Path, fault: ApiFault) -> None:
    """Activate a fault, replacing one of the same kind, service and node."""
    others = [other for other in read_faults(run_dir / FILE) if _scope(other) != _scope(fault)]
    write_faults(run_dir / FILE, [*others, fault])


def remove_fault(run_dir: Path, fault: ApiFault) -> None:
    """Deactivate a fault, whatever its fraction of requests."""
    others = [other for other in read_faults(run_dir / FILE) if _scope(other) != _scope(fault)]
    write_faults(run_dir / FILE, others)


def remove_all_faults(run_dir: Path) -> None:
    """Serve every request again."""
    (run_dir / FILE).unlink(missing_ok=True)


def _scope(fault: ApiFault) -> ApiFault:
    return replace(fault, fraction=1.0, seed=0)
