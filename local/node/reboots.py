"""Reboots that EC2 was asked for: files by which the control plane tells the data plane."""

import time
from pathlib import Path

DIRECTORY = "reboots"
HARD_REBOOT_S = 240.0
"""A node that has not gone down by itself after "a few minutes" is switched off and on ("Reboot your instance")."""


def request_reboot(run_dir: Path, instance_id: str) -> None:
    """Ask for a reboot; one that is under way already is not asked for again."""
    directory = run_dir / DIRECTORY
    directory.mkdir(exist_ok=True)
    if not (directory / instance_id).exists():
        (directory / instance_id).touch()


def requested_since(run_dir: Path, instance_id: str) -> float | None:
    """Seconds since a reboot was asked for that has not happened yet."""
    try:
        asked_at = (run_dir / DIRECTORY / instance_id).stat().st_mtime
    except FileNotFoundError:
        return None
    return time.time() - asked_at


def done(run_dir: Path, instance_id: str) -> None:
    """The node has gone down."""
    (run_dir / DIRECTORY / instance_id).unlink(missing_ok=True)
