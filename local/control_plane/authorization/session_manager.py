"""List what calls about sessions require: the instance with its tags, the document, the caller's own session.

AWS: "Sample IAM policies for Session Manager" and "Start a session with a document by specifying the session documents
in IAM policies" (AWS Systems Manager User Guide); Service Authorization Reference, Systems Manager and Message Gateway.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from moto.ec2.models import ec2_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller, UnknownActionError
from local.policy_evaluation.policies import DOCUMENT_CHECK, Permission

_CHANNEL: Final = re.compile(r"(GET|POST) /v1/(control|data)-channel/([\w:.-]+)")
_ACTIONS: Final = {"GET": "Open", "POST": "Create"}


def _start(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the instance, and on the document if the call names one.

    For a call that names none, which means a root shell, AWS requires a permission on the document only if a policy's
    statements have the condition ssm:SessionDocumentAccessCheck; here such statements do not allow the call at all.
    """
    instance_id, document = str(request.parameters.get("Target", "")), str(request.parameters.get("DocumentName", ""))
    region = request.credential.region
    tags = ec2_backends[caller.account][region].describe_tags(filters={"resource-id": [instance_id]})
    context = {
        f"{key}{tag['key']}": (str(tag["value"]),) for key in ("aws:ResourceTag/", "ssm:resourceTag/") for tag in tags
    }
    check = {DOCUMENT_CHECK: (str(bool(document)).lower(),)}
    instance = f"arn:{caller.partition}:ec2:{region}:{caller.account}:instance/{instance_id}"
    yield caller.permission(request, instance, context={**context, **check})
    if document:
        owner = "" if document.startswith("AWS-") else caller.account
        yield caller.permission(
            request, f"arn:{caller.partition}:ssm:{region}:{owner}:document/{document}", context=check
        )


def _session(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(request, caller.arn(request, f"session/{request.parameters['SessionId']}"))


def _report(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    name = f"instance/{request.parameters['InstanceId']}"
    yield caller.permission(request, f"arn:{caller.partition}:ec2:{request.credential.region}:{caller.account}:{name}")


def channel_permissions(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Yield what a call about a channel requires; only a session's data channel has a resource."""
    path_match = _CHANNEL.fullmatch(f"{request.method} {request.path}")
    if path_match is None:
        raise UnknownActionError(f"ssmmessages:{request.action} is not described in local/control_plane/authorization")
    method, kind, subject = path_match.groups()
    action = f"{_ACTIONS[method]}{kind.title()}Channel"
    session = f"arn:{caller.partition}:ssm:{request.credential.region}:{caller.account}:session/{subject}"
    resource = session if action == "OpenDataChannel" else caller.arn(request, "*")
    yield caller.permission(request, resource, action=action)


CALLS: Final[Mapping[str, Callable[[ApiRequest, Caller], Iterator[Permission]]]] = {
    "ResumeSession": _session,
    "StartSession": _start,
    "TerminateSession": _session,
    "UpdateInstanceInformation": _report,
}
