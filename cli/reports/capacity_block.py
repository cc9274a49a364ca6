"""Report the times of a cluster's Capacity Block, which an output of its stack contains."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from stacks.settings.parsing import format_utc, parse_time

_BLOCK: Final = re.compile(r"(?P<id>cr-[0-9a-f]{8,17}) (?P<starts>\S+) (?P<pauses>\S+) (?P<ends>\S+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployedBlock:
    """Capacity Block of the last deploy."""

    block_id: str
    starts_at: datetime
    pauses_at: datetime
    """Time from which AWS pauses the cluster."""
    ends_at: datetime

    def line(self, now: datetime) -> str:
        """Describe the next event, for display."""
        name = f"Capacity Block {self.block_id}"
        if now < self.starts_at:
            times = f"in {_length(self.starts_at - now)}, at {format_utc(self.starts_at)}"
            return f"{name} starts {times}; AWS starts the nodes then"
        if now < self.pauses_at:
            times = f"at {format_utc(self.pauses_at)}, and the block ends at {format_utc(self.ends_at)}"
            return f"{name}: AWS pauses the cluster in {_length(self.pauses_at - now)}, {times}"
        return f"{name} is over for this cluster since {format_utc(self.pauses_at)}: {NEXT_BLOCK}"

    def to_dict(self) -> dict[str, Any]:
        """Return the block as a JSON object."""
        times = {"starts": self.starts_at, "pauses": self.pauses_at, "ends": self.ends_at}
        return {"id": self.block_id, **{name: format_utc(time) for name, time in times.items()}}


NEXT_BLOCK: Final = "set capacity_reservation to the next one in cdk.json, then cdk deploy"
"""Advice to the user once a block is over."""


def parse_deployed_block(text: str | None) -> DeployedBlock | None:
    """Parse the output; None without a block."""
    match = _BLOCK.fullmatch(text or "")
    if match is None:
        return None
    starts, pauses, ends = (parse_time(match[name]) for name in ("starts", "pauses", "ends"))
    if starts is None or pauses is None or ends is None:
        return None
    return DeployedBlock(block_id=match["id"], starts_at=starts, pauses_at=pauses, ends_at=ends)


def _length(time: timedelta) -> str:
    hours, minutes = divmod(time // timedelta(minutes=1), 60)
    return f"{hours} h {minutes} min"
