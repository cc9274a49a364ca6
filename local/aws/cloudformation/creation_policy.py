"""Track the creation policies that still wait for signals: which resources of which stacks, and how many signals."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.cloudformation.models import Stack

_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")
_DEFAULT_TIMEOUT = "PT5M"


@dataclass(kw_only=True, slots=True)
class SignalWait:
    """A CreationPolicy that is not satisfied yet."""

    needed: int
    timer: threading.Timer
    received: set[str] = field(default_factory=set)


_WAITS: dict[str, dict[str, SignalWait]] = {}
"""Waits by stack ID, then logical ID; moto's own objects cannot hold them."""


def parse_duration(duration: str) -> int:
    """Return the seconds of an ISO 8601 duration such as ``PT15M``."""
    match = _DURATION.fullmatch(duration)
    if not match or duration == "PT":
        raise ValueError(f"invalid timeout {duration}, must be like PT15M")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def start(stack: Stack, logical_id: str, definition: dict[str, Any], expired: Callable[[], None]) -> bool:
    """Wait for signals if the resource has a CreationPolicy; return whether it has one."""
    signal = definition.get("CreationPolicy", {}).get("ResourceSignal")
    needed = int(signal.get("Count", 1)) if signal else 0
    if not needed:
        return False
    timer = threading.Timer(parse_duration(signal.get("Timeout", _DEFAULT_TIMEOUT)), expired)
    timer.daemon = True
    _WAITS.setdefault(stack.stack_id, {})[logical_id] = SignalWait(needed=needed, timer=timer)
    timer.start()
    return True


def pending(stack: Stack, logical_id: str) -> SignalWait | None:
    """Return a resource's pending wait; None if it has none."""
    return _WAITS.get(stack.stack_id, {}).get(logical_id)


def complete(stack: Stack, logical_id: str) -> None:
    """Stop waiting, because the resource has all its signals."""
    _WAITS[stack.stack_id].pop(logical_id).timer.cancel()


def forget(stack: Stack) -> None:
    """Stop all waits of a stack, whatever signals they received."""
    for wait in _WAITS.pop(stack.stack_id, {}).values():
        wait.timer.cancel()
