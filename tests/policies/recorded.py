"""The requests that the local AWS recorded of nodes, in IAM's terms: which action on which resource.

Actions, kinds of resources and condition keys: Service Authorization Reference, one page a service.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.policies.evaluate import Request, Statement, parse

LEADING_KEYS = "dynamodb:LeadingKeys"
NEEDS_NO_PERMISSION = frozenset({"sts:GetCallerIdentity"})
"""Allowed to everybody ("GetCallerIdentity" in the AWS STS API Reference)."""

_NODE_SESSION = re.compile(r"[^:]+:i-[0-9a-f]+")
"""EC2 names an instance's session by its id; the CDK's command line has roles and sessions too."""
_LOG_GROUP_END = re.compile(r'(:log-group:[^":*]+)"')

Line = Mapping[str, Any]


class UnknownCallError(Exception):
    """A call whose resources nobody has described here yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A recorded call of a node, and what its role allowed at that moment."""

    time: str
    role_arn: str
    request: Request
    statements: tuple[Statement, ...]


def read_calls(log: Path) -> Iterator[Call]:
    """The calls of all nodes, oldest first.

    A role that has no policy is being taken down; its nodes have been terminated already, and only the local AWS
    gives them another moment.
    """
    policies: dict[str, tuple[Statement, ...]] = {}
    for text in log.read_text().splitlines():
        line = json.loads(text)
        if not _NODE_SESSION.fullmatch(line.get("caller", {}).get("user_id", "")):
            continue
        role_arn = line["caller"]["role_arn"]
        documents = line["caller"].get("policies")
        if documents is not None:
            policies[role_arn] = tuple(statement for each in documents.values() for statement in parse(as_on_aws(each)))
        request = to_request(line) if policies[role_arn] else None
        if request is not None:
            yield Call(time=line["time"], role_arn=role_arn, request=request, statements=policies[role_arn])


def as_on_aws(document: Mapping[str, Any]) -> dict[str, Any]:
    """A policy of the local AWS with the ARNs of log groups as CloudFormation gives them.

    Its Fn::GetAtt of Arn ends in ``:*`` ("AWS::Logs::LogGroup", return values), and moto's does not.
    """
    return dict(json.loads(_LOG_GROUP_END.sub(r'\1:*"', json.dumps(document))))


def to_request(line: Line) -> Request | None:
    """What IAM is asked about a recorded call; None when it is not asked."""
    action, resource = _s3(line) if line["service"] == "s3" else _api(line)
    if action in NEEDS_NO_PERMISSION:
        return None
    leading = _leading_keys(line["resources"]) if action.startswith("dynamodb:") else ()
    context = {LEADING_KEYS: leading} if leading else {}
    return Request(action=action, resource=resource, user_id=line["caller"]["user_id"], context=context)


def _s3(line: Line) -> tuple[str, str]:
    """REST: the method, the path and the names in the query say it."""
    method, _, target = line["action"].partition(" ")
    path, _, query = target.partition("?")
    bucket, _, key = path.lstrip("/").partition("/")
    names = frozenset(query.split("&")) if query else frozenset()
    for action, of_object, methods, known in _S3:
        if method in methods and bool(key) == of_object and names <= known and (of_object or names):
            return action, f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    raise UnknownCallError(f"call to S3 must be one that is described here, got {line['action']}")


def _api(line: Line) -> tuple[str, str]:
    action = f"{line['service']}:{line['action']}"
    if action in NEEDS_NO_PERMISSION:
        return action, "*"
    if action not in _RESOURCES:
        raise UnknownCallError(f"call must be one of {', '.join(_RESOURCES)}, got {action}")
    return action, _RESOURCES[action](line)


def _arn(line: Line, name: str) -> str:
    account = line["caller"]["role_arn"].split(":")[4]
    return f"arn:aws:{line['service']}:{line['region']}:{account}:{name}"


def _table(line: Line) -> str:
    return _arn(line, f"table/{line['resources']['TableName']}")


def _log_stream(line: Line) -> str:
    found = line["resources"]
    return _arn(line, f"log-group:{found['logGroupName']}:log-stream:{found['logStreamName']}")


def _anything(_line: Line) -> str:
    """No kind of resource is defined for the action."""
    return "*"


def _stack(line: Line) -> str:
    """As it was named: by its id, or by its name, which IAM sees with a star in the id's place.

    An answer of CloudFormation to such a call: "is not authorized to perform: cloudformation:SignalResource on
    resource: arn:aws:cloudformation:eu-west-1:...:stack/ecs-cluster/*". A policy that names the id does not allow it.
    """
    name = str(line["resources"]["StackName"])
    return name if name.startswith("arn:") else _arn(line, f"stack/{name}/*")


_S3 = (
    ("s3:GetObject", True, ("GET", "HEAD"), frozenset({"partNumber", "x-id"})),
    ("s3:PutObject", True, ("PUT", "POST"), frozenset({"partNumber", "uploadId", "uploads", "x-id"})),
    ("s3:DeleteObject", True, ("DELETE",), frozenset({"x-id"})),
    ("s3:ListBucket", False, ("GET",), frozenset({"list-type", "prefix", "delimiter", "encoding-type", "max-keys"})),
)
"""Action, whether it is an object's, methods, and the names that its query may have. A part of an upload needs what
the object needs; another query (a version, an upload given up) would need another permission."""

_RESOURCES: Mapping[str, Callable[[Line], str]] = {
    "autoscaling:DescribeAutoScalingGroups": _anything,
    "cloudformation:SignalResource": _stack,
    "dynamodb:BatchGetItem": _table,
    "dynamodb:GetItem": _table,
    "dynamodb:PutItem": _table,
    "ec2:DescribeInstances": _anything,
    "logs:CreateLogStream": _log_stream,
    "logs:PutLogEvents": _log_stream,
}


def _leading_keys(resources: Mapping[str, Any]) -> tuple[str, ...]:
    """Partition keys of the items that a call reads or writes."""
    keys = [resources["Key"]] if "Key" in resources else resources["Keys"]
    return tuple(key["id"]["S"] for key in keys)
