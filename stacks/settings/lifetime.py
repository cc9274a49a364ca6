"""Define the setting for the end of a cluster."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from stacks.settings.values import Settings, require

PAUSE: Final = "pause"
DELETE: Final = "delete"
EXPIRY_ACTIONS: Final = (PAUSE, DELETE)
DELETE_AFTER: Final = timedelta(minutes=15)
"""Time from the end to the first deletion: three tries of the pause, and time for the nodes to drain."""
_ALLOWED: Final = "a time with its zone, like 2026-12-01T18:00:00+01:00"


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings(Settings):
    """The end of a cluster."""

    expires: str | None = None
    """Time with zone, like ``2026-12-01T18:00:00+01:00``, at which AWS pauses the cluster, and again every five minutes
    from then on. Left out: never."""
    expiry_action: str = PAUSE
    """What follows that time: ``pause``, or ``delete``, which pauses the cluster and deletes its stack 15 minutes
    later, as ``cdk destroy`` does."""

    def check(self) -> None:
        """Check the form; a time that has passed is for the deploy to refuse, as a destroy must work."""
        super().check()
        if self.expires is not None:
            require(_parse(self.expires) is not None, "expires", self.expires, _ALLOWED)
        require(self.expiry_action in EXPIRY_ACTIONS, "expiry_action", self.expiry_action, " or ".join(EXPIRY_ACTIONS))
        if self.expiry_action == DELETE:
            require(self.expires is not None, "expires", self.expires, f"set with expiry_action {DELETE}")

    @property
    def expires_at(self) -> datetime | None:
        """Return the time in UTC, to the second."""
        return None if self.expires is None else _parse(self.expires)

    @property
    def has_expired(self) -> bool:
        """Return whether the time has passed."""
        return self.expires_at is not None and self.expires_at <= datetime.now(timezone.utc)


def iso(time: datetime) -> str:
    """Return a time in UTC as AWS takes it."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _parse(text: str) -> datetime | None:
    """Return the time; None if it is not one, or has no zone."""
    try:
        # Python 3.10 takes no Z.
        found = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith(("Z", "z")) else text)
        return found.astimezone(timezone.utc).replace(microsecond=0) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None
