"""List the permissions that a call requires: which actions on which resources, with which condition keys.

AWS: Service Authorization Reference, one page per service. A call needs a permission for each resource that it names,
and a transaction needs one for each of its items.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization import autoscaling, dynamodb, ec2, s3, secrets, session_manager
from local.control_plane.authorization.callers import Caller, UnknownActionError
from local.policy_evaluation.policies import Permission

PermissionsOfRequest = Callable[[ApiRequest, Caller], Iterator[Permission]]
NEEDS_NO_PERMISSION: Final = frozenset({"sts:GetCallerIdentity", "sts:GetSessionToken"})
"""Calls that need no permission ("GetCallerIdentity" and "GetSessionToken" in the AWS STS API Reference)."""


def required_permissions(request: ApiRequest, caller: Caller) -> tuple[Permission, ...]:
    """Return the permissions that a call requires; empty if every caller may make it. Raises UnknownActionError."""
    action = f"{request.service}:{request.action}"
    if action in NEEDS_NO_PERMISSION:
        return ()
    if request.service == "s3":
        return tuple(s3.required_permissions(request, caller))
    if request.service == "ssmmessages":
        return tuple(session_manager.channel_permissions(request, caller))
    if action not in _CALLS:
        raise UnknownActionError(f"{action} is not described in local/control_plane/authorization")
    try:
        return tuple(_CALLS[action](request, caller))
    except KeyError as error:
        raise UnknownActionError(f"{action} must name {error}") from error


def _anything(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on ``*``: it has no kind of resource, or the call cannot name one."""
    yield caller.permission(request)


def _log_stream(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on a log stream; without its name, on the group's streams, with an ARN that ends early."""
    group, stream = (request.parameters.get(name, "") for name in ("logGroupName", "logStreamName"))
    yield caller.permission(request, caller.arn(request, f"log-group:{group}:log-stream:{stream}"))


def _stack(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the stack, named by its ID or by its name, for which IAM sees a star instead of the ID.

    CloudFormation answers such a call: "is not authorized to perform: cloudformation:SignalResource on resource:
    arn:aws:cloudformation:eu-west-1:...:stack/ecs-cluster/*". A policy that names the ID does not allow it.
    """
    name = str(request.parameters.get("StackName", ""))
    if not name:
        yield caller.permission(request)
    else:
        yield caller.permission(request, name if name.startswith("arn:") else caller.arn(request, f"stack/{name}/*"))


def _role_to_assume(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(request, str(request.parameters.get("RoleArn", "")))


_CALLS: Final[Mapping[str, PermissionsOfRequest]] = {
    **{f"autoscaling:{action}": list_permissions for action, list_permissions in autoscaling.CALLS.items()},
    **{f"dynamodb:{action}": list_permissions for action, list_permissions in dynamodb.CALLS.items()},
    **{f"ec2:{action}": list_permissions for action, list_permissions in ec2.CALLS.items()},
    **{f"ssm:{action}": list_permissions for action, list_permissions in session_manager.CALLS.items()},
    **secrets.CALLS,
    "cloudformation:DeleteStack": _stack,
    "cloudformation:DescribeStackEvents": _stack,
    "cloudformation:DescribeStackResource": _stack,
    "cloudformation:DescribeStackResources": _stack,
    "cloudformation:DescribeStacks": _stack,
    "cloudformation:GetTemplate": _stack,
    "cloudformation:ListStackResources": _stack,
    "cloudformation:SignalResource": _stack,
    "cloudformation:UpdateStack": _stack,
    "fsx:DescribeFileSystems": _anything,
    "logs:CreateLogStream": _log_stream,
    "logs:DeleteLogGroup": _log_stream,
    "logs:DeleteLogStream": _log_stream,
    "logs:DescribeLogGroups": _anything,
    "logs:DescribeLogStreams": _log_stream,
    "logs:FilterLogEvents": _log_stream,
    "logs:GetLogEvents": _log_stream,
    "logs:PutLogEvents": _log_stream,
    "ssm:DescribeParameters": _anything,
    "sts:AssumeRole": _role_to_assume,
}
