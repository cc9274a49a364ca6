"""Write and read the notices that a spot instance gets from EC2: files that the metadata service shows to the node.

A notice also orders the end: the data plane terminates the instance at the time in it. See "Spot Instance interruption
notices" and "EC2 instance rebalance recommendations" in the Amazon EC2 User Guide.
"""

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

DIRECTORY: Final = "notices"
INTERRUPTION: Final = "spot-instance-action"
REBALANCE: Final = "rebalance-recommendation"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


def _write(run_dir: Path, instance_id: str, name: str, body: dict[str, str]) -> None:
    directory = run_dir / DIRECTORY / instance_id
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{name}.partial"
    partial.write_text(json.dumps(body))
    partial.rename(directory / name)


def announce_interruption(run_dir: Path, instance_id: str, *, at: datetime) -> None:
    """Announce when the instance will be terminated."""
    _write(run_dir, instance_id, INTERRUPTION, {"action": "terminate", "time": at.strftime(_TIME)})


def recommend_rebalance(run_dir: Path, instance_id: str, *, now: datetime) -> None:
    """Announce that an interruption has become likely."""
    _write(run_dir, instance_id, REBALANCE, {"noticeTime": now.strftime(_TIME)})


def interruption_time(run_dir: Path, instance_id: str) -> datetime | None:
    """Return the announced time of the instance's end; None without a notice."""
    try:
        notice = json.loads((run_dir / DIRECTORY / instance_id / INTERRUPTION).read_text())
    except FileNotFoundError:
        return None
    return datetime.strptime(notice["time"], _TIME).replace(tzinfo=timezone.utc)


def forget(run_dir: Path, instance_id: str) -> None:
    """Remove the notices of an instance that is gone."""
    shutil.rmtree(run_dir / DIRECTORY / instance_id, ignore_errors=True)
