"""Deletes resources of a stack, each as soon as nothing is left that depends on it, as CloudFormation does.

A group whose instances wait for their lifecycle hooks holds up only what it depends on; what a service refuses to
delete stays, with all that it depends on. What is not there any more counts as deleted.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from moto.cloudformation.models import Stack
from moto.core.exceptions import ServiceException
from werkzeug.exceptions import HTTPException

from local.aws.cloudformation import deletions, events, updates
from local.aws.cloudformation.dependencies import creation_order, dependencies

REFUSALS = (ServiceException, HTTPException)
"""How moto says no: both families of its exceptions."""
_MISSING = re.compile(r"NotFound|NoSuch|DoesNotExist|NonExistent|\.NotAttached")
"""In an error's code: somebody has deleted the resource already, or what it was a part of."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Removal:
    stack: Stack
    retained: tuple[str, ...]
    finished: Callable[[list[str]], None]
    remaining: list[str]
    """Dependants first."""
    needed: dict[str, set[str]]
    """What each resource depends on."""
    under_way: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)


_CURRENT: dict[str, _Removal] = {}
"""By stack id."""


def reason(error: Exception) -> str:
    """Why a service said no."""
    return str(getattr(error, "message", None) or error)


def _is_missing(error: Exception) -> bool:
    # the one family has its code here, the other there
    code = getattr(error, "error_type", None) or getattr(error, "code", "")
    return bool(_MISSING.search(str(code)))


def start(
    stack: Stack, logical_ids: Iterable[str], *, retained: tuple[str, ...], finished: Callable[[list[str]], None]
) -> None:
    """Delete these resources; ``finished``, now or later, is told the logical ids of those that were refused.

    ``retained`` are the deletion policies that keep a resource. A removal that the stack had under way is given up:
    this one waits for what that one waited for.
    """
    resources = stack.resource_map._resource_json_map
    wanted = {*logical_ids}
    order = [logical_id for logical_id in reversed(creation_order(resources)) if logical_id in wanted]
    removal = _Removal(
        stack=stack, retained=retained, finished=finished, remaining=order, needed=dependencies(resources)
    )
    _CURRENT[stack.stack_id] = removal
    _advance(removal)


def _advance(removal: _Removal) -> None:
    """Delete what nothing depends on any more; one pass is enough, as dependants come first."""
    for logical_id in [*removal.remaining]:
        tried = logical_id in removal.under_way or logical_id in removal.failed
        if tried or any(logical_id in removal.needed[other] for other in removal.remaining):
            continue
        try:
            _delete(removal, logical_id)
        except REFUSALS as error:
            events.record(removal.stack, logical_id, "DELETE_FAILED", reason(error))
            removal.failed.append(logical_id)
    if not removal.under_way:
        del _CURRENT[removal.stack.stack_id]
        removal.finished(removal.failed)


def _delete(removal: _Removal, logical_id: str) -> None:
    stack = removal.stack
    definition = stack.resource_map._resource_json_map[logical_id]
    resource = stack.resource_map._parsed_resources.get(logical_id)
    if resource is None:
        _take_off(removal, logical_id)
    elif definition.get("DeletionPolicy") in removal.retained:
        events.record(stack, logical_id, "DELETE_SKIPPED")
        _take_off(removal, logical_id)
    else:
        events.record(stack, logical_id, "DELETE_IN_PROGRESS")
        at_once = True

        def gone() -> None:
            removal.under_way.discard(logical_id)
            if _CURRENT.get(stack.stack_id) is not removal:
                return
            events.record(stack, logical_id, "DELETE_COMPLETE")
            _take_off(removal, logical_id)
            if not at_once:
                _advance(removal)

        try:
            deletions.delete(resource, updates.remembered(stack, logical_id), stack, gone)
        except REFUSALS as error:
            if not _is_missing(error):
                raise
            gone()
        at_once = False
        if logical_id in removal.remaining:
            removal.under_way.add(logical_id)


def _take_off(removal: _Removal, logical_id: str) -> None:
    removal.remaining.remove(logical_id)
    removal.stack.resource_map._parsed_resources.pop(logical_id, None)
    updates.forget(removal.stack, logical_id)
