"""The connections that earlier launches have left for this one, and those that it leaves for the next."""

import os
from collections.abc import Sequence
from contextlib import suppress

from launcher.connection import Connection
from launcher.hosts import Host
from launcher.keep.kept import Kept, leave, take
from launcher.keep.situation import fixed_names, situation, situation_of
from launcher.process import Process


class Reserve:
    """Of one launch, for its hosts."""

    def __init__(self, hosts: Sequence[Host], *, seconds: float, general: str) -> None:
        self._seconds = seconds
        self._general = general
        self._fixed = fixed_names()
        self._names = [str(host) for host in hosts]
        self._kept = {one.host: one for one in take(os.environ, self._names)}
        self._situations: dict[str, str | None] = {}

    def claim(self, host: Host, command: Sequence[str]) -> Process | None:
        """The idle runner on `host`, where `command` would lead to the same one now."""
        now = self._situations[str(host)] = situation_of(host, command, self._general, names=self._fixed)
        kept = self._kept.pop(str(host), None)
        if kept is None:
            return None
        if now == kept.situation:
            return kept.process
        kept.process.discard()
        return None

    def leave(self, connections: Sequence[Connection]) -> None:
        """Keep those whose runners are idle open, and let go of them."""
        # The runner on this machine has the launching shell's limits and all else that no list names.
        away = (one for one in connections if not one.is_here)
        idle = [(one, process) for one in away if (process := one.kept()) is not None]
        kept = [
            Kept(host=str(one.host), situation=known, process=process)
            for one, process in idle
            if (known := self._situations.get(str(one.host))) is not None
        ]
        with suppress(OSError, ValueError):  # what another release's keeper says may be no answer
            # Of two launches at once both have some to leave; one connection a node is enough.
            for other in take(os.environ, self._names):
                other.process.discard()
            leave(os.environ, kept, seconds=self._seconds)
        for one, _ in idle:
            one.let_go()


def open_reserve(hosts: Sequence[Host], *, seconds: float) -> Reserve | None:
    """None where nothing is to be kept for any time, or for this user, who has no account."""
    if not seconds:
        return None
    try:
        general = situation(os.environ)
    except KeyError:
        return None
    return Reserve(hosts, seconds=seconds, general=general)
