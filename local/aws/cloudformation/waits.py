"""Which resources of which stacks wait for signals, and how many are still missing."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.cloudformation.models import Stack

_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")
_DEFAULT_TIMEOUT = "PT5M"


@dataclass(kw_only=True, slots=True)
class Wait:
    """A CreationPolicy that is not satisfied yet."""

    needed: int
    timer: threading.Timer
    received: set[str] = field(default_factory=set)


_WAITS: dict[str, dict[str, Wait]] = {}
"""By stack id, then logical id: moto's own objects have no place for it."""


def seconds(duration: str) -> int:
    """Length of an ISO 8601 duration such as ``PT15M``."""
    match = _DURATION.fullmatch(duration)
    if not match or duration == "PT":
        raise ValueError(f"invalid timeout {duration}, must be like PT15M")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def expect(stack: Stack, logical_id: str, definition: dict[str, Any], expired: Callable[[], None]) -> bool:
    """Start to wait if the resource has a CreationPolicy; says whether it has."""
    signal = definition.get("CreationPolicy", {}).get("ResourceSignal")
    needed = int(signal.get("Count", 1)) if signal else 0
    if not needed:
        return False
    timer = threading.Timer(seconds(signal.get("Timeout", _DEFAULT_TIMEOUT)), expired)
    timer.daemon = True
    _WAITS.setdefault(stack.stack_id, {})[logical_id] = Wait(needed=needed, timer=timer)
    timer.start()
    return True


def waiting(stack: Stack, logical_id: str) -> Wait | None:
    """What the resource still waits for."""
    return _WAITS.get(stack.stack_id, {}).get(logical_id)


def end(stack: Stack, logical_id: str) -> None:
    """The resource has its signals."""
    _WAITS[stack.stack_id].pop(logical_id).timer.cancel()


def forget(stack: Stack) -> None:
    """The stack waits no longer, whatever has come."""
    for wait in _WAITS.pop(stack.stack_id, {}).values():
        wait.timer.cancel()
