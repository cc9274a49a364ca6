"""One line of JSON a request: who asked which service for what. For audits of what nodes call.

A line whose access key STS issued for a role also says which role and session; and, on the first such line and
after each change, what the role's policies allow; and what IAM asks about and the request does not say: the group
that an instance is in, its tags. So a reader can judge every call by the policies and the state of its moment.
"""

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from moto.autoscaling.models import autoscaling_backends
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.sts.models import AssumedRole, sts_backends

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/[^/]+/([^/]+)/([^/]+)/")
_HINTS = re.compile(
    r"TableName|StackName|LogicalResourceId|UniqueId|Status|RoleArn|RoleSessionName|[lL]og(Group|Stream)Name"
    r"|Name|KeyName|AutoScalingGroupNames?(\.member\.\d+)?|InstanceId(\.\d+)?|Filters?\..*"
    r"|LifecycleHookName|LifecycleActionResult|HealthStatus|AllocationId|AssociationId|NetworkInterfaceId|PublicIp"
)
"""Parameters that say what a request is about."""


class RequestLog:
    """Appends to a file that others may read while it grows."""

    def __init__(self, path: Path):
        # line buffered: each request is one write
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._policies: dict[str, Any] = {}

    def write(self, environ: dict[str, Any], body: bytes) -> None:
        """Append one request."""
        noted = entry(environ, body, datetime.now(timezone.utc))
        session = session_of(noted["access_key"])
        if session:
            noted["caller"] = self._caller(session)
            noted["looked_up"] = _looked_up(noted, session.account_id)
        self._file.write(json.dumps(noted) + "\n")

    def _caller(self, session: AssumedRole) -> dict[str, Any]:
        caller: dict[str, Any] = {"role_arn": session.role_arn, "user_id": session.user_id}
        policies = _policies(session)
        if self._policies.get(session.role_arn) != policies:
            caller["policies"] = self._policies[session.role_arn] = policies
        return caller


class Scope(NamedTuple):
    """Who signed a request, for which region and service; empty strings when nobody did."""

    access_key: str
    region: str
    service: str


def scope(environ: dict[str, Any]) -> Scope:
    match = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    return Scope(*match.groups()) if match else Scope("", "", "")


def entry(environ: dict[str, Any], body: bytes, now: datetime) -> dict[str, Any]:
    """What is noted of a request."""
    asked = scope(environ)
    action, parameters = _action(environ, body)
    return {
        "time": now.isoformat(timespec="milliseconds"),
        "access_key": asked.access_key,
        "region": asked.region,
        "service": asked.service,
        "action": action,
        "resources": _resources(parameters),
    }


def _action(environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, Any]]:
    """Action and parameters of the three protocols: JSON with a target, query, and REST."""
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return target.rsplit(".", 1)[-1], _decoded(body)
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        parameters = dict(parse_qsl(body.decode()))
        return parameters.get("Action", ""), parameters
    # Names only: a signed address has its signature there.
    names = [name for name, _ in parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)]
    query = f"?{'&'.join(sorted(names))}" if names else ""
    return f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}{query}", {}


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(body))
    except ValueError:
        # the service will refuse it; the log only notes that it was asked
        return {}


def _resources(parameters: dict[str, Any]) -> dict[str, Any]:
    """Names and keys only: no contents, no secrets."""
    found: dict[str, Any] = {name: v for name, v in parameters.items() if isinstance(v, str) and _HINTS.fullmatch(name)}
    found |= _key(parameters)
    if batch := parameters.get("RequestItems"):
        reads = {table: wanted for table, wanted in batch.items() if isinstance(wanted, dict)}
        found["RequestItems"] = {table: {"Keys": wanted.get("Keys", [])} for table, wanted in reads.items()}
    if items := parameters.get("TransactItems"):
        found["TransactItems"] = [{kind: _item(wanted) for kind, wanted in item.items()} for item in items]
    return found


def _item(wanted: dict[str, Any]) -> dict[str, Any]:
    return {"TableName": wanted.get("TableName"), **_key(wanted)}


def _key(parameters: dict[str, Any]) -> dict[str, Any]:
    """The key of the one item that is asked for or put."""
    key = parameters.get("Key") or {"id": parameters.get("Item", {}).get("id")}
    return {"Key": key} if isinstance(key, dict) and any(key.values()) else {}


def _looked_up(noted: dict[str, Any], account: str) -> dict[str, Any]:
    """What is known at this moment of the group or the instance that a request names."""
    service, region, named = noted["service"], noted["region"], noted["resources"]
    if service == "autoscaling" and named.keys() & {"AutoScalingGroupName", "InstanceId"}:
        return {"group_arn": _group_arn(account, region, named)}
    if service == "ec2" and "InstanceId" in named:
        tags = ec2_backends[account][region].describe_tags(filters={"resource-id": [named["InstanceId"]]})
        return {"instance_tags": {tag["key"]: tag["value"] for tag in tags}}
    return {}


def _group_arn(account: str, region: str, named: dict[str, Any]) -> str | None:
    """The named group, or the one that the named instance is in; none when there is no such group."""
    groups = autoscaling_backends[account][region].autoscaling_groups
    if "AutoScalingGroupName" in named:
        group = groups.get(named["AutoScalingGroupName"])
        return group.arn if group else None
    for group in groups.values():
        if any(member.instance_id == named["InstanceId"] for member in group.instance_states):
            return group.arn
    return None


def session_of(access_key: str) -> AssumedRole | None:
    """The session that STS issued an access key for."""
    for partitions in sts_backends.values():
        for backend in partitions.values():
            if found := backend.get_assumed_role_from_access_key(access_key):
                return found
    return None


def _policies(session: AssumedRole) -> dict[str, Any]:
    """Documents of the role's inline policies by name; none once the role is gone."""
    roles = iam_backends[session.account_id][session.partition].roles.values()
    documents = next((role.policies for role in roles if role.arn == session.role_arn), {})
    return {name: json.loads(text) if isinstance(text, str) else text for name, text in documents.items()}
