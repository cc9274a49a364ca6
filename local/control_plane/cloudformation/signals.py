"""Wait for the signals of creation policies, with which nodes report that they are ready or have failed.

moto ignores signals. Here a resource with a creation policy is complete after its last signal, in a creation as in an
update of the stack; a FAILURE or the timeout rolls the stack back. Like AWS, refuse late signals and repeated IDs.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import EmptyResult

from local.control_plane.cloudformation import stack_events
from local.control_plane.moto_patching import add
from local.control_plane.request_lock import LOCK

_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")
_DEFAULT_TIMEOUT = "PT5M"
_SIGNALABLE = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS")
"""Statuses of a stack in which it creates resources, and so waits for their signals."""


@dataclass(kw_only=True, slots=True, eq=False)
class SignalWait:
    """A CreationPolicy that is not satisfied yet."""

    needed: int
    completed: Callable[[], None]
    """Continues after the last signal."""
    failed: Callable[[str], None]
    """Rolls back; takes the reason."""
    received: set[str] = field(default_factory=set)
    timer: threading.Timer | None = None

    def end(self) -> None:
        """Stop waiting."""
        if self.timer:
            self.timer.cancel()


_WAITS: dict[str, dict[str, SignalWait]] = {}
"""Waits by stack ID, then logical ID; moto's own objects cannot hold them."""


def install() -> None:
    """Patch moto: answer SignalResource."""
    add(CloudFormationResponse, "signal_resource", _signal_resource)


def parse_duration(duration: str) -> int:
    """Return the seconds of an ISO 8601 duration such as ``PT15M``."""
    match = _DURATION.fullmatch(duration)
    if not match or duration == "PT":
        raise ValueError(f"invalid timeout {duration}, must be like PT15M")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def wait_for_signals(
    stack: Stack,
    logical_id: str,
    definition: dict[str, Any],
    *,
    completed: Callable[[], None],
    failed: Callable[[str], None],
) -> bool:
    """Wait for signals if the resource has a CreationPolicy; return whether it has one."""
    signal = definition.get("CreationPolicy", {}).get("ResourceSignal")
    needed = int(signal.get("Count", 1)) if signal else 0
    if not needed:
        return False
    wait = SignalWait(needed=needed, completed=completed, failed=failed)
    timeout_s = parse_duration(signal.get("Timeout", _DEFAULT_TIMEOUT))
    wait.timer = threading.Timer(timeout_s, _expire, (stack, logical_id, wait))
    wait.timer.daemon = True
    _WAITS.setdefault(stack.stack_id, {})[logical_id] = wait
    wait.timer.start()
    return True


def _expire(stack: Stack, logical_id: str, wait: SignalWait) -> None:
    """Fail after a timeout, unless the wait ended while this waited for the lock."""
    with LOCK:
        if pending(stack, logical_id) is wait:
            missing = wait.needed - len(wait.received)
            wait.failed(f"Failed to receive {missing} resource signal(s) within the specified duration")


def pending(stack: Stack, logical_id: str) -> SignalWait | None:
    """Return a resource's pending wait; None if it has none."""
    return _WAITS.get(stack.stack_id, {}).get(logical_id)


def forget(stack: Stack) -> None:
    """Stop all waits of a stack, whatever signals they received."""
    for wait in _WAITS.pop(stack.stack_id, {}).values():
        wait.end()


def _signal_resource(response: CloudFormationResponse) -> EmptyResult:
    backend = response.cloudformation_backend
    stack = backend.get_stack(response._get_param("StackName"))
    logical_id = response._get_param("LogicalResourceId")
    unique_id = response._get_param("UniqueId")
    status = response._get_param("Status")
    wait = _wait(stack, logical_id)
    if status == "FAILURE":
        wait.failed(f"Received FAILURE signal with UniqueId {unique_id}")
        return EmptyResult()
    if unique_id in wait.received:
        raise ValidationError(
            message=f"Signal with ID {unique_id} for resource {logical_id} already exists. "
            "Signals may only be updated with a FAILURE status."
        )
    wait.received.add(unique_id)
    reason = f"Received SUCCESS signal with UniqueId {unique_id}"
    stack_events.record(stack, logical_id, "CREATE_IN_PROGRESS", reason)
    if len(wait.received) >= wait.needed:
        _WAITS[stack.stack_id].pop(logical_id).end()
        wait.completed()
    return EmptyResult()


def _wait(stack: Stack, logical_id: str) -> SignalWait:
    if logical_id not in stack.resource_map._resource_json_map:
        raise ValidationError(message=f"Resource {logical_id} does not exist for stack {stack.name}")
    if stack.status not in _SIGNALABLE:
        raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and cannot be signaled")
    wait = pending(stack, logical_id)
    if wait is None:
        state = "CREATE_COMPLETE" if logical_id in stack.resource_map._parsed_resources else "CREATE_PENDING"
        raise ValidationError(message=f"Resource {logical_id} is in {state} state and cannot be signaled")
    return wait
