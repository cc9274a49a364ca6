"""Report the times of a cluster's Capacity Block, which an output of its stack contains."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from stacks.settings.lifetime import iso, parse_time

_BLOCK: Final = re.compile(r"(?P<id>cr-[0-9a-f]{8,17}) (?P<starts>\S+) (?P<pauses>\S+) (?P<ends>\S+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployedBlock:
    """Capacity Block of the last deploy."""

    block_id: str
    starts: datetime
    pauses: datetime
    """Time from which AWS pauses the cluster."""
    ends: datetime

    def line(self, now: datetime) -> str:
        """Describe the next event, for display."""
        name = f"Capacity Block {self.block_id}"
        if now < self.starts:
            return f"{name} starts in {_length(self.starts - now)}, at {iso(self.starts)}; AWS starts the nodes then"
        if now < self.pauses:
            times = f"at {iso(self.pauses)}, and the block ends at {iso(self.ends)}"
            return f"{name}: AWS pauses the cluster in {_length(self.pauses - now)}, {times}"
        return f"{name} is over for this cluster since {iso(self.pauses)}: {NEXT_BLOCK}"

    def to_dict(self) -> dict[str, Any]:
        """Return the block as a JSON object."""
        times = {"starts": self.starts, "pauses": self.pauses, "ends": self.ends}
        return {"id": self.block_id, **{name: iso(time) for name, time in times.items()}}


NEXT_BLOCK: Final = "set capacity_reservation to the next one in cdk.json, then cdk deploy"
"""Advice to the user once a block is over."""


def parse_deployed_block(text: str | None) -> DeployedBlock | None:
    """Parse the output; None without a block."""
    found = _BLOCK.fullmatch(text or "")
    if found is None:
        return None
    starts, pauses, ends = (parse_time(found[name]) for name in ("starts", "pauses", "ends"))
    if starts is None or pauses is None or ends is None:
        return None
    return DeployedBlock(block_id=found["id"], starts=starts, pauses=pauses, ends=ends)


def _length(time: timedelta) -> str:
    hours, minutes = divmod(time // timedelta(minutes=1), 60)
    return f"{hours} h {minutes} min"
