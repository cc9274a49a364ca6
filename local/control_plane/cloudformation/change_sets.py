"""Apply change sets like any other update of a stack; `cdk deploy` uses them by default.

moto bypasses the stack's lifecycle: no events, no outputs, no waiting, and a failed change set stays.
It also confuses change sets of different stacks, and fails when there is none to delete.
"""

from moto.cloudformation.exceptions import CloudFormationError
from moto.cloudformation.models import ChangeSet, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from local.control_plane.cloudformation.stack_updates import require_settled
from local.control_plane.moto_patching import wrap


class ChangeSetNotFoundError(CloudFormationError):
    """The change set does not exist; the CDK CLI looks for this error code."""

    code = "ChangeSetNotFound"


def install() -> None:
    """Patch moto: answer the calls that name a change set."""
    wrap(CloudFormationResponse, "describe_change_set", lambda _moto, response: _describe(response))
    wrap(CloudFormationResponse, "delete_change_set", lambda _moto, response: _delete(response))
    wrap(CloudFormationResponse, "execute_change_set", lambda _moto, response: _execute(response))


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
