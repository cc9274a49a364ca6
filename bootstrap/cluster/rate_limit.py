"""Limit how often a node's record can change the membership, because every node reads each change.

Any process on a node can write the node's record at any rate.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bootstrap.cluster.records import NodeRecord

MIN_CHANGE_INTERVAL_S: Final = 60.0
"""Seconds between two changes by one node. Draining is exempt: a spot notice leaves only two minutes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Accepted:
    record: NodeRecord
    at: float
    """Time of its last change, in monotonic seconds."""


class RecordRateLimit:
    """Limits each node to one change per MIN_CHANGE_INTERVAL_S: until then, its last accepted record stays in force."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._accepted: dict[str, _Accepted] = {}

    def apply(self, records: Mapping[str, NodeRecord], *, instances: Collection[str]) -> dict[str, NodeRecord]:
        """Return the records in force, by instance ID; forget nodes that are not in ``instances``."""
        now = self._monotonic()
        # Keep a node whose record is bad; otherwise a bad record would reset the limit.
        self._accepted = {name: accepted for name, accepted in self._accepted.items() if name in instances}
        for name, record in records.items():
            self._accepted[name] = _next(self._accepted.get(name), record, now=now)
        return {name: self._accepted[name].record for name in records}


def _next(last: _Accepted | None, record: NodeRecord, *, now: float) -> _Accepted:
    if last is None:
        return _Accepted(record=record, at=-math.inf)
    if last.record == record:
        return last
    if now - last.at >= MIN_CHANGE_INTERVAL_S:
        return _Accepted(record=record, at=now)
    if record.draining and not last.record.draining:
        return _Accepted(record=replace(last.record, draining=True), at=now)
    return last
