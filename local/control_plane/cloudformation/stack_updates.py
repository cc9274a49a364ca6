"""Update stacks, and roll back an update that fails.

moto applies a template at once and in no order. Here an update follows the dependencies, like a creation, and waits for
the creation policies of the resources that it adds; what does not depend on them goes on. A refused call, a FAILURE
signal or a timeout rolls it back.
"""

from dataclasses import dataclass
from typing import Any, Final

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack

from local.control_plane.cloudformation import ordered_deletion, resource_updates, signals, stack_events
from local.control_plane.cloudformation.dependencies import creation_order, dependencies
from local.control_plane.cloudformation.ordered_deletion import SERVICE_ERRORS
from local.control_plane.cloudformation.stacks import create_resource, exists
from local.control_plane.moto_patching import wrap

_SETTLED: Final = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")
_CLEANUP: Final = "COMPLETE_CLEANUP_IN_PROGRESS"
_UPDATE: Final = "UPDATE"
_ROLLBACK: Final = "UPDATE_ROLLBACK"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """A template and its parameters, with the stack's tags and its role."""

    template: str | dict[str, Any]
    parameters: dict[str, Any]
    tags: dict[str, str]
    role_arn: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Update:
    """An update or a rollback in progress."""

    direction: str
    """``UPDATE`` or ``UPDATE_ROLLBACK``, with which the stack's statuses begin."""
    before: _Target
    """State to which a failed update returns."""
    outputs: list[dict[str, Any]] | None
    """Outputs before the update."""
    old: dict[str, Any]
    """Resources that may exist, as templates define them, by logical ID."""
    new: dict[str, Any]
    """Resources of the new template."""


_CURRENT: dict[str, _Update] = {}
"""Updates in progress by stack ID."""


def install() -> None:
    """Patch moto: replace the updates of its stacks."""
    wrap(Stack, "update", _update)
    wrap(Stack, "outputs", _outputs)
    wrap(CloudFormationBackend, "update_stack", _update_stack)


def require_settled(stack: Stack) -> None:
    """Refuse to update a stack that is changing or has failed."""
    if stack.status not in _SETTLED:
        raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")


def _update_stack(
    original: Any,
    backend: CloudFormationBackend,
    *,
    name: str,
    template: str,
    parameters: list[dict[str, Any]],
    tags: dict[str, str] | None,
    **kwargs: Any,
) -> Stack:
    stack = backend.get_stack(name)
    require_settled(stack)
    same_parameters = backend._resolve_update_parameters(stack, parameters) == stack.parameters
    if stack.has_template(template) and same_parameters and tags in (None, stack.tags):
        raise ValidationError(message="No updates are to be performed.")
    original(backend, name=name, template=template, parameters=parameters, tags=tags, **kwargs)
    return stack


def _update(
    _original: Any,
    stack: Stack,
    template: str,
    role_arn: str | None = None,
    parameters: dict[str, Any] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    before = _Target(template=stack.template, parameters=stack.parameters, tags=stack.tags, role_arn=stack.role_arn)
    outputs = stack.outputs
    stack_events.record_stack(stack, "UPDATE_IN_PROGRESS", "User Initiated")
    target = _Target(
        template=template,
        parameters=parameters or stack.parameters,
        tags=stack.tags if tags is None else tags,
        # CloudFormation goes on using the role of an earlier call (UpdateStack, RoleARN).
        role_arn=role_arn or stack.role_arn,
    )
    _start(stack, target, _UPDATE, before=before, outputs=outputs)


def _start(
    stack: Stack, target: _Target, direction: str, *, before: _Target, outputs: list[dict[str, Any]] | None
) -> None:
    """Begin to change the resources to those of a template."""
    resource_map = stack.resource_map
    old = resource_map._resource_json_map
    own_tags = {name: value for name, value in resource_map.tags.items() if name not in stack.tags}
    resource_map.tags = own_tags | target.tags
    stack.tags, stack.role_arn = target.tags, target.role_arn
    stack.template = target.template
    stack._parse_template()
    stack.parameters = resource_map.input_parameters = target.parameters
    resource_map._template = stack.template_dict
    new = stack.template_dict["Resources"]
    # removed resources stay known until they are deleted
    resource_map._resource_json_map = old | new
    resource_map.load_mapping()
    resource_map.load_parameters()
    resource_map.load_conditions()
    _CURRENT[stack.stack_id] = _Update(direction=direction, before=before, outputs=outputs, old=old, new=new)
    _advance(stack)


def _advance(stack: Stack) -> None:
    """Add and change the resources whose dependencies are complete; delete the removed ones when none is left.

    A resource that an earlier call changed already equals its definition, so this call skips it.
    """
    update = _CURRENT[stack.stack_id]
    needed = dependencies(update.new)
    finished: set[str] = set()
    try:
        for logical_id in creation_order(update.new):
            if needed[logical_id] <= finished:
                _change_resource(stack, logical_id, back=update.direction == _ROLLBACK)
                if not signals.pending(stack, logical_id):
                    finished.add(logical_id)
    except SERVICE_ERRORS:
        verb = "update" if exists(stack, logical_id) else "create"
        _fail(stack, f"The following resource(s) failed to {verb}: [{logical_id}].")
        return
    if len(finished) == len(update.new):
        _clean_up(stack, update)


def _change_resource(stack: Stack, logical_id: str, *, back: bool) -> None:
    if not exists(stack, logical_id):
        try:
            create_resource(stack, logical_id, advance=_advance, roll_back=_roll_back)
        except SERVICE_ERRORS as error:
            stack_events.record(stack, logical_id, "CREATE_FAILED", ordered_deletion.error_reason(error))
            raise
    elif resource_updates.changed(stack, logical_id):
        stack_events.record(stack, logical_id, "UPDATE_IN_PROGRESS")
        try:
            resource_updates.update(stack, logical_id, back=back)
        except SERVICE_ERRORS as error:
            stack_events.record(stack, logical_id, "UPDATE_FAILED", ordered_deletion.error_reason(error))
            raise
        stack_events.record(stack, logical_id, "UPDATE_COMPLETE")


def _roll_back(stack: Stack, logical_id: str, reason: str) -> None:
    """Roll back because a new resource did not become ready."""
    stack_events.record(stack, logical_id, "CREATE_FAILED", reason)
    _fail(stack, f"The following resource(s) failed to create: [{logical_id}].")


def _fail(stack: Stack, reason: str) -> None:
    """Return to the state before the update; a rollback that fails stays as it is."""
    update = _CURRENT.pop(stack.stack_id)
    signals.forget(stack)
    if update.direction == _ROLLBACK:
        stack_events.record_stack(stack, "UPDATE_ROLLBACK_FAILED", reason)
        return
    stack_events.record_stack(stack, "UPDATE_ROLLBACK_IN_PROGRESS", reason)
    _start(stack, update.before, _ROLLBACK, before=update.before, outputs=None)


def _clean_up(stack: Stack, update: _Update) -> None:
    """Delete the resources that the new template lacks.

    A resource that cannot be deleted stays but leaves the stack: CloudFormation does not roll back for that.
    """
    del _CURRENT[stack.stack_id]
    resource_map = stack.resource_map
    stack.output_map = stack._create_output_map()
    stack_events.record_stack(stack, f"{update.direction}_{_CLEANUP}")

    def finished(failed: list[str]) -> None:
        for logical_id in failed:
            resource_map._parsed_resources.pop(logical_id, None)
            resource_updates.forget(stack, logical_id)
        resource_map._resource_json_map = update.new
        stack_events.record_stack(stack, f"{update.direction}_COMPLETE")

    removed = update.old.keys() - update.new.keys()
    ordered_deletion.start(stack, removed, retained=("Retain", "RetainExceptOnCreate"), finished=finished)


def _outputs(original: Any, stack: Stack) -> list[dict[str, Any]] | None:
    """Return the outputs of the last complete template, because moto would create the resources that others refer to.

    During an update they are those from before it; during a rollback there are none: docs/aws-truth.md, 6.4a.
    """
    if stack.status in _SETTLED or stack.status.endswith(_CLEANUP):
        outputs: list[dict[str, Any]] | None = original(stack)
        return outputs
    update = _CURRENT.get(stack.stack_id)
    return update.outputs if update else None
