"""Apply change sets like any other update of a stack; `cdk deploy` uses them by default.

moto bypasses the stack's lifecycle: no events, no outputs, no waiting, and a failed change set stays.
It also confuses change sets of different stacks, fails when there is none to delete, and creates a second stack of the
same name for each one that creates it.
"""

from typing import Any

from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.models import ChangeSet, CloudFormationBackend, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from local.control_plane.cloudformation.stack_updates import require_settled
from local.control_plane.moto_patching import wrap


class ChangeSetNotFoundError(CloudFormationError):
    """The change set does not exist; the CDK CLI looks for this error code."""

    code = "ChangeSetNotFound"


def install() -> None:
    """Patch moto: answer the calls that name a change set."""
    wrap(CloudFormationBackend, "create_change_set", _create_change_set)
    wrap(CloudFormationResponse, "describe_change_set", lambda _moto, response: _describe(response))
    wrap(CloudFormationResponse, "delete_change_set", lambda _moto, response: _delete(response))
    wrap(CloudFormationResponse, "execute_change_set", lambda _moto, response: _execute(response))


def _create_change_set(original: Any, backend: CloudFormationBackend, **arguments: Any) -> tuple[str, str]:
    """Keep the stack that an earlier change set announced and nobody executed (REVIEW_IN_PROGRESS)."""
    name = arguments["stack_name"]
    announced = next((stack for stack in backend.stacks.values() if stack.name == name), None)
    if announced is None or arguments["change_set_type"] != "CREATE":
        ids: tuple[str, str] = original(backend, **arguments)
        return ids
    if announced.status != "REVIEW_IN_PROGRESS":
        change_set_name = arguments["change_set_name"]
        reason = f"already exists and cannot be created again with the changeSet [{change_set_name}]"
        raise ValidationError(message=f"Stack [{name}] {reason}.")
    change_set_id, created_id = original(backend, **arguments)
    del backend.stacks[created_id]
    change_set = backend.change_sets[change_set_id]
    change_set.stack, change_set.stack_id = announced, announced.stack_id
    return change_set_id, announced.stack_id


def _find(response: CloudFormationResponse) -> ChangeSet | None:
    name, stack = response._get_param("ChangeSetName"), response._get_param("StackName")
    for change_set in reversed(response.cloudformation_backend.change_sets.values()):
        of_stack = stack in (None, change_set.stack_name, change_set.stack_id)
        if name == change_set.change_set_id or (name == change_set.change_set_name and of_stack):
            return change_set
    return None


def _named(response: CloudFormationResponse) -> ChangeSet:
    if change_set := _find(response):
        return change_set
    raise ChangeSetNotFoundError(f"ChangeSet [{response._get_param('ChangeSetName')}] does not exist")


def _describe(response: CloudFormationResponse) -> ActionResult:
    return ActionResult(_named(response))


def _delete(response: CloudFormationResponse) -> EmptyResult:
    # moto keeps the change sets of deleted stacks under the same names, so delete all of them.
    while change_set := _find(response):
        del response.cloudformation_backend.change_sets[change_set.change_set_id]
    return EmptyResult()


def _execute(response: CloudFormationResponse) -> EmptyResult:
    backend, change_set = response.cloudformation_backend, _named(response)
    stack = backend.stacks[change_set.stack_id]
    if change_set.change_set_type != "CREATE":
        require_settled(stack)
    change_set.execution_status = "EXECUTE_COMPLETE"
    if change_set.change_set_type == "CREATE":
        _create(stack, change_set)
        backend.exports |= {export.name: export for export in stack.exports}
    else:
        stack.update(change_set.template, change_set.role_arn, change_set.parameters, change_set.tags)
    return EmptyResult()


def _create(stack: Stack, change_set: ChangeSet) -> None:
    stack.template = change_set.template
    stack._parse_template()
    stack.parameters = change_set.parameters
    stack.resource_map = stack._create_resource_map()
    stack.output_map = stack._create_output_map()
    stack._add_stack_event("CREATE_IN_PROGRESS", "User Initiated")
    stack.create_resources()
