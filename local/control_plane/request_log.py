"""Log each request as a line of JSON, to audit the calls of nodes: caller, service, action and resources.

For an authorized caller, the line also contains its identity, its number of policies (a role that is being deleted has
none), the permissions that the call required, with the values of the condition keys, and the one that was refused. If
the client sends an application ID (AWS_SDK_UA_APP_ID), the line contains that too.
"""

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.authorizer import Authorization
from local.policy_evaluation.policies import Permission

_APPLICATION = re.compile(r"(?:^| )app/(\S+)")
_HINTS = re.compile(
    r"TableName|StackName|LogicalResourceId|UniqueId|Status|RoleArn|RoleSessionName|[lL]og(Group|Stream)Name"
    r"|Name|KeyName|AutoScalingGroupNames?(\.member\.\d+)?|InstanceId(\.\d+)?|Filters?\..*"
    r"|LifecycleHookName|LifecycleActionResult|HealthStatus|AllocationId|AssociationId|NetworkInterfaceId|PublicIp"
)
"""Parameters that identify the subject of a request."""


class RequestLog:
    """Appends to a file that others may read while it grows."""

    def __init__(self, path: Path):
        # line buffered: each request is one write
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def write(self, request: ApiRequest, authorization: Authorization) -> None:
        """Append one request and the result of its authorization."""
        logged = entry(request, datetime.now(timezone.utc))
        if application := _APPLICATION.search(request.header("user-agent")):
            logged["application"] = application[1]
        if caller := authorization.caller:
            logged["caller"] = {
                "role_arn": caller.principal_arn,
                "user_id": caller.user_id,
                "policies": len(caller.documents),
            }
            logged["needs"] = [_permission_entry(permission) for permission in authorization.required]
            if authorization.refused:
                logged["refused"] = _permission_entry(authorization.refused)
        self._file.write(json.dumps(logged) + "\n")


def entry(request: ApiRequest, now: datetime) -> dict[str, Any]:
    """Return a request's entry, before its authorization is added."""
    return {
        "time": now.isoformat(timespec="milliseconds"),
        "access_key": request.credential.access_key,
        "region": request.credential.region,
        "service": request.service,
        "action": request.action,
        "resources": _resources(request.parameters),
    }


def _permission_entry(permission: Permission) -> dict[str, Any]:
    return {"action": permission.action, "resource": permission.resource, "context": permission.context}


def _resources(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return only names and keys, neither contents nor secrets."""
    resources: dict[str, Any] = {
        name: v for name, v in parameters.items() if isinstance(v, str) and _HINTS.fullmatch(name)
    }
    resources |= _key(parameters)
    if batch := parameters.get("RequestItems"):
        reads = {table: read for table, read in batch.items() if isinstance(read, dict)}
        resources["RequestItems"] = {table: {"Keys": read.get("Keys", [])} for table, read in reads.items()}
    if items := parameters.get("TransactItems"):
        resources["TransactItems"] = [{kind: _item(operation) for kind, operation in item.items()} for item in items]
    return resources


def _item(operation: dict[str, Any]) -> dict[str, Any]:
    return {"TableName": operation.get("TableName"), **_key(operation)}


def _key(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the key of the only item that is read or written."""
    key = parameters.get("Key") or {"id": parameters.get("Item", {}).get("id")}
    return {"Key": key} if isinstance(key, dict) and any(key.values()) else {}
