"""Define and check the settings for the end of a cluster; stacks/lifetime/lifetime_schedules.py acts on them."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from stacks.settings.base import Settings, require
from stacks.settings.parsing import parse_duration, parse_time

PAUSE: Final = "pause"
DELETE: Final = "delete"
EXPIRY_ACTIONS: Final = (PAUSE, DELETE)
DELETE_AFTER: Final = timedelta(minutes=15)
"""Time from the end to the first deletion: three attempts to pause, and time for the nodes to drain."""
MIN_IDLE_STOP: Final = timedelta(minutes=10)
"""Shortest idle_stop: five minutes to detect that a cluster is idle, and five for the announcement."""
_IDLE_STOP_ALLOWED: Final = "a time like 30m, 2h or 1d, at least 10m"
_ALLOWED: Final = "a time with its zone, like 2026-12-01T18:00:00+01:00"


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings(Settings):
    """The end of a cluster."""

    expires: str | None = None
    """Time with zone, like ``2026-12-01T18:00:00+01:00``, at which AWS pauses the cluster, and again every five minutes
    from then on. Default: never."""
    expiry_action: str = PAUSE
    """What follows that time: ``pause``, or ``delete``, which pauses the cluster and deletes its stack 15 minutes
    later, as ``cdk destroy`` does."""
    idle_stop: str | None = None
    """Time like ``30m`` or ``2h``, at least ``10m``, after which an idle cluster pauses itself, which erases the nodes'
    disks: no job, no input to a terminal, and no load on any node. Default: never."""

    def check(self) -> None:
        """Check the form; a time that has passed is refused only by the deploy, because a destroy must work."""
        super().check()
        if self.expires is not None:
            require(parse_time(self.expires) is not None, "expires", self.expires, _ALLOWED)
        require(self.expiry_action in EXPIRY_ACTIONS, "expiry_action", self.expiry_action, " or ".join(EXPIRY_ACTIONS))
        if self.expiry_action == DELETE:
            require(self.expires is not None, "expires", self.expires, f"set with expiry_action {DELETE}")
        if self.idle_stop is not None:
            time = parse_duration(self.idle_stop)
            require(time and time >= MIN_IDLE_STOP, "idle_stop", self.idle_stop, _IDLE_STOP_ALLOWED)

    def warnings(self) -> dict[str, str]:
        """Warn if nothing pauses a cluster whose master is dead."""
        warnings = super().warnings()
        if self.idle_stop is not None and self.expires is None:
            warnings["idle-stop-alone"] = (
                "idle_stop is set without expires: the master pauses an idle cluster, and nothing pauses one whose "
                "master is broken; set expires too"
            )
        return warnings

    @property
    def idle_stop_s(self) -> int:
        """Return the seconds of idle_stop; 0 without it."""
        time = None if self.idle_stop is None else parse_duration(self.idle_stop)
        return 0 if time is None else int(time.total_seconds())

    @property
    def expires_at(self) -> datetime | None:
        """Return the time in UTC, to the second."""
        return None if self.expires is None else parse_time(self.expires)

    @property
    def has_expired(self) -> bool:
        """Return True if the time has passed."""
        return self.expires_at is not None and self.expires_at <= datetime.now(timezone.utc)
