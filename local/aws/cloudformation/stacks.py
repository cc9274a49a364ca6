"""The life of a stack: created in order, rolled back, updated, deleted.

moto creates every resource at once, finds out about changes from the template's text alone, and
deletes in no order. Here resources are created after what they depend on, a resource that waits for
signals holds up only its dependants, a change of a resource reaches those that refer to it, and
deletion runs in reverse. A refusal by a service rolls the stack back, as CloudFormation does.
"""

import logging
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.ec2.models.core import TaggedEC2Resource

from local.aws.cloudformation import events, removals, updates, waits
from local.aws.cloudformation.dependencies import creation_order, dependencies
from local.aws.cloudformation.removals import REFUSALS
from local.aws.patching import around
from local.aws.serial import LOCK

logger = logging.getLogger(__name__)

_SETTLED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


def install() -> None:
    """Put this life of stacks in the place of moto's."""
    around(Stack, "create_resources", _create)
    around(Stack, "update", _update)
    around(Stack, "outputs", _outputs)
    around(Stack, "stack_resources", _stack_resources)
    around(Stack, "stack_parameters", _stack_parameters)
    around(CloudFormationBackend, "create_stack", _create_stack)
    around(CloudFormationBackend, "update_stack", _update_stack)
    around(CloudFormationBackend, "delete_stack", _delete_stack)


def _create_stack(original: Any, backend: CloudFormationBackend, **arguments: Any) -> Stack:
    try:
        creation_order(Stack.parse_template(arguments["template"])["Resources"])
    except ValueError as error:
        raise ValidationError(message=str(error)) from error
    stack: Stack = original(backend, **arguments)
    return stack


def _create(_original: Any, stack: Stack) -> None:
    stack.status = "CREATE_IN_PROGRESS"
    stack.resource_map.tags |= {
        "aws:cloudformation:stack-name": stack.name,
        "aws:cloudformation:stack-id": stack.stack_id,
    }
    advance(stack)


def advance(stack: Stack) -> None:
    """Create what depends on nothing unfinished; complete the stack when nothing is left."""
    resources = stack.template_dict["Resources"]
    needed = dependencies(resources)
    finished: set[str] = set()
    for logical_id in creation_order(resources):
        if not needed[logical_id] <= finished:
            continue
        if not _exists(stack, logical_id):
            try:
                _create_resource(stack, logical_id)
            except REFUSALS as error:
                roll_back(stack, logical_id, removals.reason(error))
                return
        if not waits.waiting(stack, logical_id):
            finished.add(logical_id)
    if len(finished) == len(resources):
        events.record_stack(stack, "CREATE_COMPLETE")


def resource_complete(stack: Stack, logical_id: str) -> None:
    """Go on after a resource that waited for signals has all of them."""
    events.record(stack, logical_id, "CREATE_COMPLETE")
    advance(stack)


def roll_back(stack: Stack, logical_id: str, reason: str) -> None:
    """Delete all that a failed creation made, save what its policy retains."""
    waits.forget(stack)
    events.record(stack, logical_id, "CREATE_FAILED", reason)
    why = f"The following resource(s) failed to create: [{logical_id}]. Rollback requested by user."
    events.record_stack(stack, "ROLLBACK_IN_PROGRESS", why)

    def finished(failed: list[str]) -> None:
        events.record_stack(stack, "ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE")

    removals.start(stack, stack.resource_map._resource_json_map, retained=("Retain",), finished=finished)


def _expired(stack: Stack, logical_id: str) -> None:
    """The timer of a wait ran out; a signal may have come while it waited for the lock."""
    with LOCK:
        if wait := waits.waiting(stack, logical_id):
            missing = wait.needed - len(wait.received)
            reason = f"Failed to receive {missing} resource signal(s) within the specified duration"
            roll_back(stack, logical_id, reason)


def _exists(stack: Stack, logical_id: str) -> bool:
    return logical_id in stack.resource_map._parsed_resources


def _create_resource(stack: Stack, logical_id: str) -> None:
    resource_map = stack.resource_map
    events.record(stack, logical_id, "CREATE_IN_PROGRESS")
    resource: Any = resource_map[logical_id]
    if resource is None:
        # a resource whose condition is false, or of a type without effect here
        resource_map._parsed_resources[logical_id] = None
        return
    definition = updates.remember(stack, logical_id)
    if isinstance(resource, TaggedEC2Resource):
        updates.tag(stack, logical_id, resource, definition)
    if not waits.expect(stack, logical_id, definition, lambda: _expired(stack, logical_id)):
        events.record(stack, logical_id, "CREATE_COMPLETE")


def _update_stack(
    original: Any,
    backend: CloudFormationBackend,
    *,
    name: str,
    template: str,
    parameters: list[dict[str, Any]],
    tags: dict[str, str] | None,
    **named: Any,
) -> Stack:
    stack = backend.get_stack(name)
    if stack.status not in _SETTLED:
        raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")
    same_parameters = backend._resolve_update_parameters(stack, parameters) == stack.parameters
    if stack.has_template(template) and same_parameters and tags in (None, stack.tags):
        raise ValidationError(message="No updates are to be performed.")
    original(backend, name=name, template=template, parameters=parameters, tags=tags, **named)
    return stack


def _update(
    _original: Any,
    stack: Stack,
    template: str,
    role_arn: str | None = None,
    parameters: dict[str, Any] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    before = stack.template, stack.parameters
    stack.role_arn = role_arn
    stack.tags = stack.tags if tags is None else tags
    stack.resource_map.tags |= stack.tags
    events.record_stack(stack, "UPDATE_IN_PROGRESS", "User Initiated")
    try:
        _change(stack, template, parameters, "UPDATE")
    except REFUSALS as error:
        events.record_stack(stack, "UPDATE_ROLLBACK_IN_PROGRESS", removals.reason(error))
        _change_back(stack, *before)


def _change_back(stack: Stack, template: str | dict[str, Any], parameters: dict[str, Any]) -> None:
    try:
        _change(stack, template, parameters, "UPDATE_ROLLBACK")
    except REFUSALS as error:
        events.record_stack(stack, "UPDATE_ROLLBACK_FAILED", removals.reason(error))


def _change(stack: Stack, template: str | dict[str, Any], parameters: dict[str, Any] | None, direction: str) -> None:
    """Make the resources those of the template: add and change in order, then remove.

    What cannot be removed is left, and is no longer the stack's: CloudFormation does not roll back for that.
    """
    resource_map = stack.resource_map
    old = resource_map._resource_json_map
    stack.template = template
    stack._parse_template()
    stack.parameters = resource_map.input_parameters = parameters or stack.parameters
    resource_map._template = stack.template_dict
    new = stack.template_dict["Resources"]
    # the removed ones stay known until they are deleted
    resource_map._resource_json_map = old | new
    resource_map.load_mapping()
    resource_map.load_parameters()
    resource_map.load_conditions()
    for logical_id in creation_order(new):
        _change_resource(stack, logical_id, back=direction == "UPDATE_ROLLBACK")
    events.record_stack(stack, f"{direction}_COMPLETE_CLEANUP_IN_PROGRESS")

    def finished(left: list[str]) -> None:
        for logical_id in left:
            resource_map._parsed_resources.pop(logical_id, None)
            updates.forget(stack, logical_id)
        resource_map._resource_json_map = new
        stack.output_map = stack._create_output_map()
        events.record_stack(stack, f"{direction}_COMPLETE")

    removals.start(stack, old.keys() - new.keys(), retained=("Retain", "RetainExceptOnCreate"), finished=finished)


def _change_resource(stack: Stack, logical_id: str, *, back: bool) -> None:
    if not _exists(stack, logical_id):
        _create_resource(stack, logical_id)
    elif updates.changed(stack, logical_id):
        events.record(stack, logical_id, "UPDATE_IN_PROGRESS")
        try:
            updates.update(stack, logical_id, back=back)
        except REFUSALS as error:
            events.record(stack, logical_id, "UPDATE_FAILED", removals.reason(error))
            raise
        events.record(stack, logical_id, "UPDATE_COMPLETE")


def _delete_stack(_original: Any, backend: CloudFormationBackend, name_or_stack_id: str) -> None:
    for stack in [s for s in backend.stacks.values() if name_or_stack_id in (s.name, s.stack_id)]:
        if stack.status != "DELETE_IN_PROGRESS":
            _delete_one_stack(backend, stack)


def _delete_one_stack(backend: CloudFormationBackend, stack: Stack) -> None:
    waits.forget(stack)
    events.record_stack(stack, "DELETE_IN_PROGRESS", "User Initiated")

    def finished(failed: list[str]) -> None:
        if failed:
            why = f"The following resource(s) failed to delete: [{', '.join(failed)}]."
            events.record_stack(stack, "DELETE_FAILED", why)
            return
        events.record_stack(stack, "DELETE_COMPLETE")
        backend.deleted_stacks[stack.stack_id] = backend.stacks.pop(stack.stack_id)
        for name in [n for n, e in backend.exports.items() if e.exporting_stack_id == stack.stack_id]:
            del backend.exports[name]

    resources = stack.resource_map._resource_json_map
    removals.start(stack, resources, retained=("Retain", "RetainExceptOnCreate"), finished=finished)


def _outputs(original: Any, stack: Stack) -> list[dict[str, Any]] | None:
    """None before the stack is settled: moto would create what the outputs refer to."""
    if stack.status not in _SETTLED:
        return None
    outputs: list[dict[str, Any]] | None = original(stack)
    return outputs


def _stack_resources(_original: Any, stack: Stack) -> list[Any]:
    """The resources that exist: asking moto for all would create the others."""
    parsed = stack.resource_map._parsed_resources
    return [parsed[name] for name in stack.resource_map.resources if parsed.get(name) is not None]


def _stack_parameters(_original: Any, stack: Stack) -> dict[str, Any]:
    """The parameters' values as given: moto keeps what they resolve to, so an SSM one loses its name."""
    slots = stack.template_dict.get("Parameters", {})
    return {name: slot["Default"] for name, slot in slots.items() if "Default" in slot} | stack.parameters
