"""Pass requested reboots from the control plane to the data plane, as files."""

import time
from pathlib import Path

DIRECTORY = "reboots"
HARD_REBOOT_S = 240.0
"""Seconds for a node to shut down before it is switched off and on: EC2's "few minutes" ("Reboot your instance")."""


def request_reboot(run_dir: Path, instance_id: str) -> None:
    """Request a reboot, unless one is already pending."""
    directory = run_dir / DIRECTORY
    directory.mkdir(exist_ok=True)
    if not (directory / instance_id).exists():
        (directory / instance_id).touch()


def seconds_since_request(run_dir: Path, instance_id: str) -> float | None:
    """Return the seconds since a pending reboot was requested; None if none is pending."""
    try:
        asked_at = (run_dir / DIRECTORY / instance_id).stat().st_mtime
    except FileNotFoundError:
        return None
    return time.time() - asked_at


def clear_request(run_dir: Path, instance_id: str) -> None:
    """Remove the request, because the node has shut down."""
    (run_dir / DIRECTORY / instance_id).unlink(missing_ok=True)
