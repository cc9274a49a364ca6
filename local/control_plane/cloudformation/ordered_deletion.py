"""Delete a stack's resources, each as soon as nothing depends on it any more, like CloudFormation.

A group whose instances wait for lifecycle hooks delays only the resources that it depends on. A resource that its
service refuses to delete stays, and so does everything that it depends on. A missing resource counts as deleted.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from moto.cloudformation.models import Stack
from moto.core.exceptions import ServiceException
from werkzeug.exceptions import HTTPException

from local.control_plane.cloudformation import resource_deletion, resource_updates, stack_events
from local.control_plane.cloudformation.dependencies import creation_order, dependencies

SERVICE_ERRORS = (ServiceException, HTTPException)
"""Base classes of the exceptions that moto raises when it refuses a call."""
_MISSING = re.compile(r"NotFound|NoSuch|DoesNotExist|NonExistent|\.NotAttached")
"""Matches error codes which say that the resource, or its parent, is already deleted."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Deletion:
    stack: Stack
    retained: tuple[str, ...]
    finished: Callable[[list[str]], None]
    remaining: list[str]
    """Logical IDs of the resources that still exist, dependants first."""
    needed: dict[str, set[str]]
    """Dependencies of each resource."""
    in_progress: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)


_CURRENT: dict[str, _Deletion] = {}
"""Deletions in progress by stack ID."""


def error_reason(error: Exception) -> str:
    """Return why a service refused a call."""
    return str(getattr(error, "message", None) or error)


def _is_missing(error: Exception) -> bool:
    # the two families of exceptions name their code differently
    code = getattr(error, "error_type", None) or getattr(error, "code", "")
    return bool(_MISSING.search(str(code)))


def start(
    stack: Stack, logical_ids: Iterable[str], *, retained: tuple[str, ...], finished: Callable[[list[str]], None]
) -> None:
    """Delete these resources, then call ``finished``, now or later, with the logical IDs of the refused ones.

    ``retained`` are the deletion policies that keep a resource. This call replaces a deletion of the same stack that is
    still in progress and waits for the same resources.
    """
    resources = stack.resource_map._resource_json_map
    requested = {*logical_ids}
    order = [logical_id for logical_id in reversed(creation_order(resources)) if logical_id in requested]
    deletion = _Deletion(
        stack=stack, retained=retained, finished=finished, remaining=order, needed=dependencies(resources)
    )
    _CURRENT[stack.stack_id] = deletion
    _advance(deletion)


def _advance(deletion: _Deletion) -> None:
    """Delete the resources on which nothing depends any more; one pass suffices because dependants come first."""
    for logical_id in [*deletion.remaining]:
        tried = logical_id in deletion.in_progress or logical_id in deletion.failed
        if tried or any(logical_id in deletion.needed[other] for other in deletion.remaining):
            continue
        try:
            _delete(deletion, logical_id)
        except SERVICE_ERRORS as error:
            stack_events.record(deletion.stack, logical_id, "DELETE_FAILED", error_reason(error))
            deletion.failed.append(logical_id)
    if not deletion.in_progress:
        del _CURRENT[deletion.stack.stack_id]
        deletion.finished(deletion.failed)


def _delete(deletion: _Deletion, logical_id: str) -> None:
    stack = deletion.stack
    definition = stack.resource_map._resource_json_map[logical_id]
    resource = stack.resource_map._parsed_resources.get(logical_id)
    if resource is None:
        _mark_deleted(deletion, logical_id)
    elif definition.get("DeletionPolicy") in deletion.retained:
        stack_events.record(stack, logical_id, "DELETE_SKIPPED")
        _mark_deleted(deletion, logical_id)
    else:
        stack_events.record(stack, logical_id, "DELETE_IN_PROGRESS")
        at_once = True

        def deleted() -> None:
            deletion.in_progress.discard(logical_id)
            if _CURRENT.get(stack.stack_id) is not deletion:
                return
            stack_events.record(stack, logical_id, "DELETE_COMPLETE")
            _mark_deleted(deletion, logical_id)
            if not at_once:
                _advance(deletion)

        try:
            resource_deletion.delete(resource, resource_updates.recorded_definition(stack, logical_id), stack, deleted)
        except SERVICE_ERRORS as error:
            if not _is_missing(error):
                raise
            deleted()
        at_once = False
        if logical_id in deletion.remaining:
            deletion.in_progress.add(logical_id)


def _mark_deleted(deletion: _Deletion, logical_id: str) -> None:
    deletion.remaining.remove(logical_id)
    deletion.stack.resource_map._parsed_resources.pop(logical_id, None)
    resource_updates.forget(deletion.stack, logical_id)
