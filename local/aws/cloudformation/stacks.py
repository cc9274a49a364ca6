"""Create, update, roll back and delete stacks.

moto creates every resource immediately, detects changes only from the template's text, and deletes in no order. Here
each resource is created after those that it depends on, a resource that waits for signals delays only its dependants, a
change of a resource reaches those that refer to it, and deletion runs in reverse order. If a service refuses a call,
the stack rolls back, like CloudFormation's.
"""

import logging
import re
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.ec2.models.core import TaggedEC2Resource

from local.aws.cloudformation import creation_policy, ordered_deletion, resource_updates, stack_events
from local.aws.cloudformation.dependencies import creation_order, dependencies
from local.aws.cloudformation.ordered_deletion import SERVICE_ERRORS
from local.aws.moto_patching import wrap
from local.aws.request_lock import LOCK

logger = logging.getLogger(__name__)

_UPDATING = re.compile(r"UPDATE_(?:.*_)?IN_PROGRESS")
_SETTLED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


def install() -> None:
    """Patch moto: replace the lifecycle of its stacks."""
    wrap(Stack, "create_resources", _create)
    wrap(Stack, "update", _update)
    wrap(Stack, "outputs", _outputs)
    wrap(Stack, "stack_resources", _stack_resources)
    wrap(Stack, "stack_parameters", _stack_parameters)
    # template_rules wraps the result of this, to refuse a template before a stack is created.
    wrap(CloudFormationBackend, "create_stack", _create_stack)
    wrap(CloudFormationBackend, "update_stack", _update_stack)
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
    stack.resource_map.tags |= {
        "aws:cloudformation:stack-name": stack.name,
        "aws:cloudformation:stack-id": stack.stack_id,
    }
    advance(stack)


def advance(stack: Stack) -> None:
    """Create the resources whose dependencies are complete; complete the stack when none is left."""
    resources = stack.template_dict["Resources"]
    needed = dependencies(resources)
    finished: set[str] = set()
    for logical_id in creation_order(resources):
        if not needed[logical_id] <= finished:
            continue
        if not _exists(stack, logical_id):
            try:
                _create_resource(stack, logical_id)
            except SERVICE_ERRORS as error:
                roll_back(stack, logical_id, ordered_deletion.error_reason(error))
                return
        if not creation_policy.pending(stack, logical_id):
            finished.add(logical_id)
    if len(finished) == len(resources):
        stack_events.record_stack(stack, "CREATE_COMPLETE")


def resource_complete(stack: Stack, logical_id: str) -> None:
    """Continue after a resource has received all its signals."""
    stack_events.record(stack, logical_id, "CREATE_COMPLETE")
    advance(stack)


def roll_back(stack: Stack, logical_id: str, reason: str) -> None:
    """Delete the resources of a failed creation, except those that a policy retains."""
    creation_policy.forget(stack)
    stack_events.record(stack, logical_id, "CREATE_FAILED", reason)
    why = f"The following resource(s) failed to create: [{logical_id}]. Rollback requested by user."
    stack_events.record_stack(stack, "ROLLBACK_IN_PROGRESS", why)

    def finished(failed: list[str]) -> None:
        stack_events.record_stack(stack, "ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE")

    ordered_deletion.start(stack, stack.resource_map._resource_json_map, retained=("Retain",), finished=finished)


def _expired(stack: Stack, logical_id: str) -> None:
    """Roll back after a timeout, unless the last signal arrived while this waited for the lock."""
    with LOCK:
        if wait := creation_policy.pending(stack, logical_id):
            missing = wait.needed - len(wait.received)
            reason = f"Failed to receive {missing} resource signal(s) within the specified duration"
            roll_back(stack, logical_id, reason)


def _exists(stack: Stack, logical_id: str) -> bool:
    return logical_id in stack.resource_map._parsed_resources


def _create_resource(stack: Stack, logical_id: str) -> None:
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
    if not creation_policy.start(stack, logical_id, definition, lambda: _expired(stack, logical_id)):
        stack_events.record(stack, logical_id, "CREATE_COMPLETE")


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
    stack_events.record_stack(stack, "UPDATE_IN_PROGRESS", "User Initiated")
    try:
        _apply_template(stack, template, parameters, "UPDATE")
    except SERVICE_ERRORS as error:
        stack_events.record_stack(stack, "UPDATE_ROLLBACK_IN_PROGRESS", ordered_deletion.error_reason(error))
        _roll_back_update(stack, *before)


def _roll_back_update(stack: Stack, template: str | dict[str, Any], parameters: dict[str, Any]) -> None:
    try:
        _apply_template(stack, template, parameters, "UPDATE_ROLLBACK")
    except SERVICE_ERRORS as error:
        stack_events.record_stack(stack, "UPDATE_ROLLBACK_FAILED", ordered_deletion.error_reason(error))


def _apply_template(
    stack: Stack, template: str | dict[str, Any], parameters: dict[str, Any] | None, direction: str
) -> None:
    """Update the resources to a template: add and change in order, then delete.

    A resource that cannot be deleted stays but leaves the stack: CloudFormation does not roll back for that.
    """
    resource_map = stack.resource_map
    old = resource_map._resource_json_map
    stack.template = template
    stack._parse_template()
    stack.parameters = resource_map.input_parameters = parameters or stack.parameters
    resource_map._template = stack.template_dict
    new = stack.template_dict["Resources"]
    # removed resources stay known until they are deleted
    resource_map._resource_json_map = old | new
    resource_map.load_mapping()
    resource_map.load_parameters()
    resource_map.load_conditions()
    for logical_id in creation_order(new):
        _change_resource(stack, logical_id, back=direction == "UPDATE_ROLLBACK")
    stack_events.record_stack(stack, f"{direction}_COMPLETE_CLEANUP_IN_PROGRESS")

    def finished(left: list[str]) -> None:
        for logical_id in left:
            resource_map._parsed_resources.pop(logical_id, None)
            resource_updates.forget(stack, logical_id)
        resource_map._resource_json_map = new
        stack.output_map = stack._create_output_map()
        stack_events.record_stack(stack, f"{direction}_COMPLETE")

    ordered_deletion.start(
        stack, old.keys() - new.keys(), retained=("Retain", "RetainExceptOnCreate"), finished=finished
    )


def _change_resource(stack: Stack, logical_id: str, *, back: bool) -> None:
    if not _exists(stack, logical_id):
        _create_resource(stack, logical_id)
    elif resource_updates.changed(stack, logical_id):
        stack_events.record(stack, logical_id, "UPDATE_IN_PROGRESS")
        try:
            resource_updates.update(stack, logical_id, back=back)
        except SERVICE_ERRORS as error:
            stack_events.record(stack, logical_id, "UPDATE_FAILED", ordered_deletion.error_reason(error))
            raise
        stack_events.record(stack, logical_id, "UPDATE_COMPLETE")


def _delete_stack(_original: Any, backend: CloudFormationBackend, name_or_stack_id: str) -> None:
    for stack in [s for s in backend.stacks.values() if name_or_stack_id in (s.name, s.stack_id)]:
        if _UPDATING.fullmatch(stack.status):
            raise ValidationError(message=f"Stack [{stack.name}] cannot be deleted while in status {stack.status}")
        if stack.status != "DELETE_IN_PROGRESS":
            _delete_one_stack(backend, stack)


def _delete_one_stack(backend: CloudFormationBackend, stack: Stack) -> None:
    creation_policy.forget(stack)
    stack_events.record_stack(stack, "DELETE_IN_PROGRESS", "User Initiated")

    def finished(failed: list[str]) -> None:
        if failed:
            why = f"The following resource(s) failed to delete: [{', '.join(failed)}]."
            stack_events.record_stack(stack, "DELETE_FAILED", why)
            return
        stack_events.record_stack(stack, "DELETE_COMPLETE")
        backend.deleted_stacks[stack.stack_id] = backend.stacks.pop(stack.stack_id)
        for name in [n for n, e in backend.exports.items() if e.exporting_stack_id == stack.stack_id]:
            del backend.exports[name]

    resources = stack.resource_map._resource_json_map
    ordered_deletion.start(stack, resources, retained=("Retain", "RetainExceptOnCreate"), finished=finished)


def _outputs(original: Any, stack: Stack) -> list[dict[str, Any]] | None:
    """Return None until the stack is settled, because moto would create what the outputs refer to."""
    if stack.status not in _SETTLED:
        return None
    outputs: list[dict[str, Any]] | None = original(stack)
    return outputs


def _stack_resources(_original: Any, stack: Stack) -> list[Any]:
    """Return only the resources that exist, because moto would create the others."""
    parsed = stack.resource_map._parsed_resources
    return [parsed[name] for name in stack.resource_map.resources if parsed.get(name) is not None]


def _stack_parameters(_original: Any, stack: Stack) -> dict[str, Any]:
    """Return the parameters as given: moto stores resolved values, so an SSM parameter loses its name."""
    declared = stack.template_dict.get("Parameters", {})
    return {name: one["Default"] for name, one in declared.items() if "Default" in one} | stack.parameters
