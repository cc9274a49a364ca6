"""Answer SignalResource, with which nodes report that they are ready or have failed.

moto ignores signals. Here a stack waits for the signals of its creation policies, and a FAILURE rolls it back
immediately. Like AWS, refuse late signals and repeated IDs.
"""

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import EmptyResult

from local.aws.cloudformation import creation_policy, stack_events, stacks
from local.aws.moto_patching import add


def install() -> None:
    """Patch moto: answer SignalResource."""
    add(CloudFormationResponse, "signal_resource", _signal_resource)


def _signal_resource(response: CloudFormationResponse) -> EmptyResult:
    backend = response.cloudformation_backend
    stack = backend.get_stack(response._get_param("StackName"))
    logical_id = response._get_param("LogicalResourceId")
    unique_id = response._get_param("UniqueId")
    status = response._get_param("Status")
    wait = _wait(stack, logical_id)
    if status == "FAILURE":
        stacks.roll_back(stack, logical_id, f"Received FAILURE signal with UniqueId {unique_id}")
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
        creation_policy.complete(stack, logical_id)
        stacks.resource_complete(stack, logical_id)
    return EmptyResult()


def _wait(stack: Stack, logical_id: str) -> creation_policy.SignalWait:
    if logical_id not in stack.resource_map._resource_json_map:
        raise ValidationError(message=f"Resource {logical_id} does not exist for stack {stack.name}")
    if stack.status != "CREATE_IN_PROGRESS":
        raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and cannot be signaled")
    wait = creation_policy.pending(stack, logical_id)
    if wait is None:
        state = "CREATE_COMPLETE" if logical_id in stack.resource_map._parsed_resources else "CREATE_PENDING"
        raise ValidationError(message=f"Resource {logical_id} is in {state} state and cannot be signaled")
    return wait
