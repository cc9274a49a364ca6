"""Create and delete stacks; stack_updates.py changes them.

moto creates every resource immediately and deletes in no order. Here each resource is created after those that it
depends on, a resource that waits for signals delays only its dependants, and deletion runs in reverse order. If a
service refuses a call, the stack rolls back, like CloudFormation's.
"""

import re
from collections.abc import Callable
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.ec2.models.core import TaggedEC2Resource

from local.control_plane.cloudformation import ordered_deletion, resource_updates, signals, stack_events
from local.control_plane.cloudformation.dependencies import creation_order, dependencies
from local.control_plane.cloudformation.ordered_deletion import SERVICE_ERRORS
from local.control_plane.moto_patching import wrap

_UPDATING = re.compile(r"UPDATE_(?:.*_)?IN_PROGRESS")


def install() -> None:
    """Patch moto: replace the creation and deletion of its stacks."""
    wrap(Stack, "create_resources", _create)
    wrap(Stack, "stack_resources", _stack_resources)
    wrap(Stack, "stack_parameters", _stack_parameters)
    # template_rules wraps the result of this, to refuse a template before a stack is created.
    wrap(CloudFormationBackend, "create_stack", _create_stack)
    wrap(CloudFormationBackend, "delete_stack", _delete_stack)


def _create_stack(original: Any, backend: CloudFormationBackend, **arguments: Any) -> Stack:
    try:
        creation_order(Stack.parse_template(arguments["template"])["Resources"])
    except ValueError as error:
        raise ValidationError(message=str(error)) from error
    stack: Stack = original(backend, **arguments)
    return stack


def _create(_original: Any, stack: Stack) -> None:
    stack.status = "CREATE_IN_PROGRESS"
    # A stack made by a change set begins without a template, and so without its description.
    stack.description = stack.template_dict.get("Description")
    stack.resource_map.tags |= {
        "aws:cloudformation:stack-name": stack.name,
        "aws:cloudformation:stack-id": stack.stack_id,
    }
    _advance(stack)


def _advance(stack: Stack) -> None:
    """Create the resources whose dependencies are complete; complete the stack when none is left."""
    resources = stack.template_dict["Resources"]
    needed = dependencies(resources)
    finished: set[str] = set()
    for logical_id in creation_order(resources):
        if not needed[logical_id] <= finished:
            continue
        if not exists(stack, logical_id):
            try:
                create_resource(stack, logical_id, advance=_advance, roll_back=_roll_back)
            except SERVICE_ERRORS as error:
                _roll_back(stack, logical_id, ordered_deletion.error_reason(error))
                return
        if not signals.pending(stack, logical_id):
            finished.add(logical_id)
    if len(finished) == len(resources):
        stack_events.record_stack(stack, "CREATE_COMPLETE")


def _roll_back(stack: Stack, logical_id: str, reason: str) -> None:
    """Delete the resources of a failed creation, except those that a policy retains."""
    signals.forget(stack)
    stack_events.record(stack, logical_id, "CREATE_FAILED", reason)
    rollback_reason = f"The following resource(s) failed to create: [{logical_id}]. Rollback requested by user."
    stack_events.record_stack(stack, "ROLLBACK_IN_PROGRESS", rollback_reason)

    def finished(failed: list[str]) -> None:
        stack_events.record_stack(stack, "ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE")

    ordered_deletion.start(stack, stack.resource_map._resource_json_map, retained=("Retain",), finished=finished)


def exists(stack: Stack, logical_id: str) -> bool:
    """Return True if the resource has been created."""
    return logical_id in stack.resource_map._parsed_resources


def create_resource(
    stack: Stack,
    logical_id: str,
    *,
    advance: Callable[[Stack], None],
    roll_back: Callable[[Stack, str, str], None],
) -> None:
    """Create a resource; if it has a creation policy, call one of the functions when its wait has ended.

    ``roll_back`` takes the stack, the resource's logical ID and the reason.
    """
    resource_map = stack.resource_map
    stack_events.record(stack, logical_id, "CREATE_IN_PROGRESS")
    resource: Any = resource_map[logical_id]
    if resource is None:
        # its condition is false, or its type has no effect here
        resource_map._parsed_resources[logical_id] = None
        return
    definition = resource_updates.record_definition(stack, logical_id)
    if isinstance(resource, TaggedEC2Resource):
        resource_updates.tag(stack, logical_id, resource, definition)

    def completed() -> None:
        stack_events.record(stack, logical_id, "CREATE_COMPLETE")
        advance(stack)

    def failed(reason: str) -> None:
        roll_back(stack, logical_id, reason)

    if not signals.wait_for_signals(stack, logical_id, definition, completed=completed, failed=failed):
        stack_events.record(stack, logical_id, "CREATE_COMPLETE")


def _delete_stack(_original: Any, backend: CloudFormationBackend, name_or_stack_id: str) -> None:
    for stack in [s for s in backend.stacks.values() if name_or_stack_id in (s.name, s.stack_id)]:
        if _UPDATING.fullmatch(stack.status):
            raise ValidationError(message=f"Stack [{stack.name}] cannot be deleted while in status {stack.status}")
        if stack.status != "DELETE_IN_PROGRESS":
            _delete_one_stack(backend, stack)


def _delete_one_stack(backend: CloudFormationBackend, stack: Stack) -> None:
    signals.forget(stack)
    stack_events.record_stack(stack, "DELETE_IN_PROGRESS", "User Initiated")

    def finished(failed: list[str]) -> None:
        if failed:
            reason = f"The following resource(s) failed to delete: [{', '.join(failed)}]."
            stack_events.record_stack(stack, "DELETE_FAILED", reason)
            return
        stack_events.record_stack(stack, "DELETE_COMPLETE")
        backend.deleted_stacks[stack.stack_id] = backend.stacks.pop(stack.stack_id)
        for name in [n for n, e in backend.exports.items() if e.exporting_stack_id == stack.stack_id]:
            del backend.exports[name]

    resources = stack.resource_map._resource_json_map
    ordered_deletion.start(stack, resources, retained=("Retain", "RetainExceptOnCreate"), finished=finished)


def _stack_resources(_original: Any, stack: Stack) -> list[Any]:
    """Return only the resources that exist, because moto would create the others."""
    parsed = stack.resource_map._parsed_resources
    return [parsed[name] for name in stack.resource_map.resources if parsed.get(name) is not None]


def _stack_parameters(_original: Any, stack: Stack) -> dict[str, Any]:
    """Return the parameters as given: moto stores resolved values, so an SSM parameter loses its name."""
    declared = stack.template_dict.get("Parameters", {})
    return {
        name: parameter["Default"] for name, parameter in declared.items() if "Default" in parameter
    } | stack.parameters
