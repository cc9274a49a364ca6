"""Record stack events of single resources, which `cdk deploy` prints and moto lacks."""

import json
from datetime import timedelta
from typing import Any

from moto.cloudformation.models import Event, Stack
from moto.cloudformation.responses import StackResourceDTO
from moto.cloudtrail.responses import CloudTrailResponse

from local.control_plane.moto_patching import add, wrap


def install() -> None:
    """Patch moto: report the status of single resources, and answer CloudTrail's LookupEvents."""
    wrap(StackResourceDTO, "__init__", _describe)
    add(CloudTrailResponse, "lookup_events", _lookup_events)


def record(stack: Stack, logical_id: str, status: str, reason: str | None = None) -> None:
    """Append an event of one resource to the stack's events."""
    resource = stack.resource_map._parsed_resources.get(logical_id)
    template: dict[str, Any] = stack.resource_map._resource_json_map[logical_id]
    event = Event(
        stack_id=stack.stack_id,
        stack_name=stack.name,
        logical_resource_id=logical_id,
        physical_resource_id=getattr(resource, "physical_resource_id", None) or "",
        resource_type=template["Type"],
        resource_status=status,
        resource_status_reason=reason,
        resource_properties=None,
    )
    stack.events.append(event)
    _separate(stack)


def record_stack(stack: Stack, status: str, reason: str | None = None) -> None:
    """Set the stack's status and append its event."""
    stack.status = status
    stack._add_stack_event(status, reason)
    _separate(stack)


def _separate(stack: Stack) -> None:
    """Separate events by a millisecond, because the CDK CLI sorts them by time in milliseconds."""
    if len(stack.events) > 1:
        earliest = stack.events[-2].timestamp + timedelta(milliseconds=1)
        stack.events[-1].timestamp = max(stack.events[-1].timestamp, earliest)


def _describe(original: Any, described: Any, stack: Stack, resource: Any) -> None:
    """Report the status of a resource's last event; moto reports the stack's status."""
    original(described, stack, resource)
    for event in reversed(stack.events):
        if event.logical_resource_id == described.logical_resource_id:
            described.resource_status = event.resource_status
            described.timestamp = event.timestamp
            return


def _lookup_events(_response: CloudTrailResponse) -> str:
    """Return no CloudTrail events; given moto's error, the CDK CLI would retry for 30 s after a failed deploy."""
    return json.dumps({"Events": []})
