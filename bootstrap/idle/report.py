"""Decide when this node reports how long it has been idle: rarely, but never too late."""

import logging
import math
from collections.abc import Callable
from typing import Final

from bootstrap.idle.pause_record import IdleReport, render_idle_report

log = logging.getLogger(__name__)

SAMPLE_S: Final = 30.0
"""Seconds between samples of the node's load; CPU and network are averages over them."""
HEARTBEAT_S: Final = 120.0
"""Seconds between reports of an unchanged state: two are written while one counts (detector.REPORT_MAX_AGE_S)."""


class IdleReporter:
    """Reports how long the node has been idle; ``observe`` samples the load, ``is_due`` asks for another report."""

    def __init__(
        self, busy_with: Callable[[], str], *, monotonic: Callable[[], float], sequence_number: Callable[[], int]
    ) -> None:
        self._busy_with = busy_with
        self._monotonic = monotonic
        self._sequence_number = sequence_number
        self._last_active_at = monotonic()
        self._next_sample = 0.0
        self._last_report_at = -math.inf
        self._reported_active_at = self._last_active_at
        self._busy = ""
        self._is_enabled = False

    def set_enabled(self, is_enabled: bool) -> None:
        """Turn the report on or off: only a cluster with ``idle_stop`` has one. Turning it on counts as activity."""
        if is_enabled and not self._is_enabled:
            self._last_active_at = self._monotonic()
        self._is_enabled = is_enabled

    def observe(self) -> None:
        """Sample the load, unless the last sample is recent."""
        now = self._monotonic()
        if not self._is_enabled or now < self._next_sample:
            return
        self._next_sample = now + SAMPLE_S
        busy = self._busy_with()
        if busy:
            self._last_active_at = now
        if busy != self._busy:
            log.info("%s", f"busy: {busy}" if busy else "idle")
            self._busy = busy

    @property
    def is_due(self) -> bool:
        """Return True for a heartbeat, or if the node is busy but last reported that it was idle."""
        now = self._monotonic()
        said_idle = self._last_report_at - self._reported_active_at > SAMPLE_S
        is_heartbeat = now >= self._last_report_at + HEARTBEAT_S
        return self._is_enabled and (is_heartbeat or (said_idle and self._last_active_at > self._reported_active_at))

    def text(self) -> str:
        """Return the report to write; empty if the report is off."""
        if not self._is_enabled:
            return ""
        idle_s = max(0.0, self._monotonic() - self._last_active_at)
        return render_idle_report(IdleReport(sequence_number=self._sequence_number(), idle_s=int(idle_s)))

    def mark_written(self) -> None:
        """Note that the report has been written."""
        self._last_report_at = self._monotonic()
        self._reported_active_at = self._last_active_at
