"""Limit how often one node's record changes the membership: after each change, every node reads the members anew.

A node writes its own record as often as it likes, and so does any process on it.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bootstrap.cluster.records import NodeRecord

HOLD_S: Final = 60.0
"""Seconds between two changes by one node; it may start to drain at any time, as a spot notice leaves no minute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Accepted:
    record: NodeRecord
    at: float
    """When it last changed."""


class RecordLimit:
    """Remember what each node's record said when it last counted."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._accepted: dict[str, _Accepted] = {}

    def apply(self, records: Mapping[str, NodeRecord], *, instances: Collection[str]) -> dict[str, NodeRecord]:
        """Return the records that count now, by instance ID; forget the nodes that are none of ``instances``."""
        now = self._monotonic()
        # A node without a usable record stays known: else a bad record would end the wait.
        self._accepted = {name: each for name, each in self._accepted.items() if name in instances}
        for name, record in records.items():
            self._accepted[name] = _next(self._accepted.get(name), record, now=now)
        return {name: self._accepted[name].record for name in records}


def _next(last: _Accepted | None, said: NodeRecord, *, now: float) -> _Accepted:
    if last is None:
        return _Accepted(record=said, at=-math.inf)
    if last.record == said:
        return last
    if now - last.at >= HOLD_S:
        return _Accepted(record=said, at=now)
    if said.draining and not last.record.draining:
        return _Accepted(record=replace(last.record, draining=True), at=now)
    return last
