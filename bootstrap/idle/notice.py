"""Announce upcoming pauses on this node: on its terminals, in the agent's log, and in a file for durable jobs' logs.

The service of durable jobs on the master reads the file (launcher.job_records.pause_notices).
"""

import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

from bootstrap.errors import CommandError
from bootstrap.idle.pause_record import PauseRecord
from bootstrap.jobs.checkpoints_at_risk import JobsAtRisk

log = logging.getLogger(__name__)

BEFORE_EXPIRY: Final = timedelta(minutes=15)
"""Time before ``expires``, or before EC2 terminates a Capacity Block's nodes, at which the announcement starts."""
MAX_NAMED: Final = 5
"""Largest number of jobs in an announcement."""
EXPIRES: Final = "expires"
BLOCK: Final = "block"
IDLE: Final = "idle"
_SENTENCES: Final = {
    EXPIRES: "this cluster pauses at {time} UTC (expires) and all its nodes will be terminated; dlcluster extend 8h "
    "postpones it",
    BLOCK: "this cluster pauses at {time} UTC, before its Capacity Block ends, and all its nodes will be terminated: "
    "durable jobs continue in the next block",
    IDLE: "this cluster is idle and pauses at {time} UTC, which terminates all its nodes; press a key or start a job "
    "to keep it running",
}
_WITHDRAWN: Final = {
    EXPIRES: "this cluster's expiry has been postponed",
    BLOCK: "this cluster has another Capacity Block",
    IDLE: "this cluster is in use again and does not pause",
}


class Notices:
    """Announces each pause once, and once that it has been withdrawn."""

    def __init__(
        self,
        broadcast_to_terminals: Callable[[str], None],
        *,
        find_jobs_at_risk: Callable[[], JobsAtRisk] = lambda: JobsAtRisk([], []),
        write: Callable[[str], object] = lambda text: None,
    ) -> None:
        """`find_jobs_at_risk` finds the jobs whose checkpoints the pause may delete; `write` replaces the file."""
        self._broadcast_to_terminals = broadcast_to_terminals
        self._find_jobs_at_risk = find_jobs_at_risk
        self._write = write
        self._announced: dict[str, datetime] = {}
        self._last: dict[str, dict[str, object]] = {}
        """Last announcement of each kind whose time has not passed."""
        self._written = ""

    def follow(self, record: PauseRecord, *, now: datetime) -> None:
        """Announce new pauses in the record, and withdraw announced pauses that it no longer contains."""
        coming = dict(_coming(record, now))
        for kind, time in coming.items():
            if self._announced.get(kind) != time:
                sentence = _SENTENCES[kind].format(time=f"{time:%H:%M}") + self._losses()
                self._announce(kind, sentence, is_coming=True)
        for kind, time in self._announced.items():
            if kind not in coming and now < time:
                self._announce(kind, _WITHDRAWN[kind], is_coming=False)
            elif kind not in coming:
                self._last.pop(kind, None)
        self._announced = coming
        self._write_last()

    def _losses(self) -> str:
        try:
            jobs = self._find_jobs_at_risk()
        except OSError as error:
            log.warning("jobs cannot be read: %s", error)
            return ""
        lost = f". The checkpoints of these jobs will be lost: {', '.join(jobs.local[:MAX_NAMED])}"
        unknown = (
            f". It is unknown whether the checkpoints of job {', '.join(jobs.unknown[:MAX_NAMED])} are in S3 or the "
            "shared directory"
        )
        return (lost if jobs.local else "") + (unknown if jobs.unknown else "")

    def _announce(self, kind: str, sentence: str, *, is_coming: bool) -> None:
        log.warning("%s", sentence)
        self._last[kind] = {"sentence": sentence, "is_coming": is_coming}
        try:
            self._broadcast_to_terminals(sentence)
        except CommandError as error:
            log.warning("%s", error)

    def _write_last(self) -> None:
        """Write the file if it changes; the first time always, because another agent's announcements may be in it."""
        text = json.dumps(self._last) + "\n"
        if text == self._written:
            return
        try:
            self._write(text)
            self._written = text
        except OSError as error:
            log.warning("announcements do not reach the logs of durable jobs: %s", error)


def _coming(record: PauseRecord, now: datetime) -> Iterator[tuple[str, datetime]]:
    if record.expires is not None and now < record.expires <= now + BEFORE_EXPIRY:
        yield EXPIRES, record.expires
    if record.block_pauses is not None and now < record.block_pauses <= now + BEFORE_EXPIRY:
        yield BLOCK, record.block_pauses
    if record.pauses_at is not None and now < record.pauses_at:
        yield IDLE, record.pauses_at
