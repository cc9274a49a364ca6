"""The calls that the local AWS recorded of nodes, in IAM's terms: which actions on which resources.

Actions, kinds of resources and condition keys: Service Authorization Reference, one page a service. A call needs a
permission for each resource that it names, and a transaction one for each of its items.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.policies.evaluate import Request, Statement, is_allowed, parse

LEADING_KEYS = "dynamodb:LeadingKeys"
GROUP_OF_INSTANCE = "aws:ResourceTag/aws:autoscaling:groupName"
"""Auto Scaling tags the instances of a group with its name."""
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
    requests: tuple[Request, ...]
    """All must be allowed."""
    statements: tuple[Statement, ...]

    @property
    def refused(self) -> list[Request]:
        """What the call needed and the role did not allow."""
        return [request for request in self.requests if not is_allowed(self.statements, request)]


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
        requests = to_requests(line) if policies[role_arn] else ()
        if requests:
            yield Call(time=line["time"], role_arn=role_arn, requests=requests, statements=policies[role_arn])


def as_on_aws(document: Mapping[str, Any]) -> dict[str, Any]:
    """A policy of the local AWS with the ARNs of log groups as CloudFormation gives them.

    Its Fn::GetAtt of Arn ends in ``:*`` ("AWS::Logs::LogGroup", return values), and moto's does not.
    """
    return dict(json.loads(_LOG_GROUP_END.sub(r'\1:*"', json.dumps(document))))


def to_requests(line: Line) -> tuple[Request, ...]:
    """What IAM is asked about a recorded call; nothing when it is not asked."""
    if line["service"] == "s3":
        return (_s3(line),)
    action = f"{line['service']}:{line['action']}"
    if action in NEEDS_NO_PERMISSION:
        return ()
    if action not in _CALLS:
        raise UnknownCallError(f"call must be one of {', '.join(_CALLS)}, got {action}")
    return tuple(_CALLS[action](line))


def _request(
    line: Line, resource: str, *, action: str | None = None, context: Mapping[str, Sequence[str]] | None = None
) -> Request:
    """Most calls need the permission that has their name."""
    action = action or f"{line['service']}:{line['action']}"
    return Request(action=action, resource=resource, user_id=line["caller"]["user_id"], context=context or {})


def _s3(line: Line) -> Request:
    """REST: the method, the path and the names in the query say it."""
    method, _, target = line["action"].partition(" ")
    path, _, query = target.partition("?")
    bucket, _, key = path.lstrip("/").partition("/")
    names = frozenset(query.split("&")) if query else frozenset()
    for action, of_object, methods, known in _S3:
        if method in methods and bool(key) == of_object and names <= known and (of_object or names):
            resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
            return _request(line, resource, action=action)
    raise UnknownCallError(f"call to S3 must be one that is described here, got {line['action']}")


def _arn(line: Line, name: str) -> str:
    account = line["caller"]["role_arn"].split(":")[4]
    return f"arn:aws:{line['service']}:{line['region']}:{account}:{name}"


def _anything(line: Line) -> Iterator[Request]:
    """No kind of resource is defined for the action."""
    yield _request(line, "*")


def _on_item(line: Line) -> Iterator[Request]:
    found = line["resources"]
    yield _on_table(line, found["TableName"], [found["Key"]])


def _on_batch(line: Line) -> Iterator[Request]:
    for table, wanted in line["resources"]["RequestItems"].items():
        yield _on_table(line, table, wanted["Keys"])


def _on_transaction(line: Line) -> Iterator[Request]:
    """Each item needs what it would need alone ("IAM and transactions", Amazon DynamoDB Developer Guide)."""
    for item in line["resources"]["TransactItems"]:
        for kind, found in item.items():
            yield _on_table(line, found["TableName"], [found["Key"]], action=_IN_TRANSACTION[kind])


def _on_table(line: Line, table: str, keys: Iterable[Any], *, action: str | None = None) -> Request:
    """With the partition keys of the items that are read or written."""
    leading = tuple(key["id"]["S"] for key in keys)
    return _request(line, _arn(line, f"table/{table}"), action=action, context={LEADING_KEYS: leading})


def _log_stream(line: Line) -> Iterator[Request]:
    found = line["resources"]
    yield _request(line, _arn(line, f"log-group:{found['logGroupName']}:log-stream:{found['logStreamName']}"))


def _stack(line: Line) -> Iterator[Request]:
    """As it was named: by its id, or by its name, which IAM sees with a star in the id's place.

    An answer of CloudFormation to such a call: "is not authorized to perform: cloudformation:SignalResource on
    resource: arn:aws:cloudformation:eu-west-1:...:stack/ecs-cluster/*". A policy that names the id does not allow it.
    """
    name = str(line["resources"]["StackName"])
    yield _request(line, name if name.startswith("arn:") else _arn(line, f"stack/{name}/*"))


def _group(line: Line) -> Iterator[Request]:
    """The group as the local AWS knew it; one that it did not know has stars, which no policy for one group matches
    unless the call named that group.
    """
    name = line["resources"].get("AutoScalingGroupName", "*")
    unknown = _arn(line, f"autoScalingGroup:*:autoScalingGroupName/{name}")
    yield _request(line, line["looked_up"]["group_arn"] or unknown)


def _address(line: Line) -> Iterator[Request]:
    """The address and the instance; an interface named instead of an instance would be another resource."""
    found = line["resources"]
    if found.keys() != {"AllocationId", "InstanceId"}:
        raise UnknownCallError(f"AssociateAddress must name AllocationId and InstanceId, got {', '.join(found)}")
    yield _request(line, _arn(line, f"elastic-ip/{found['AllocationId']}"))
    group = line["looked_up"]["instance_tags"].get("aws:autoscaling:groupName")
    context = {} if group is None else {GROUP_OF_INSTANCE: (group,)}
    yield _request(line, _arn(line, f"instance/{found['InstanceId']}"), context=context)


_S3 = (
    ("s3:GetObject", True, ("GET", "HEAD"), frozenset({"partNumber", "x-id"})),
    ("s3:PutObject", True, ("PUT", "POST"), frozenset({"partNumber", "uploadId", "uploads", "x-id"})),
    ("s3:DeleteObject", True, ("DELETE",), frozenset({"x-id"})),
    ("s3:ListBucket", False, ("GET",), frozenset({"list-type", "prefix", "delimiter", "encoding-type", "max-keys"})),
)
"""Action, whether it is an object's, methods, and the names that its query may have. A part of an upload needs what
the object needs; another query (a version, an upload given up) would need another permission."""

_IN_TRANSACTION = {
    "ConditionCheck": "dynamodb:ConditionCheckItem",
    "Delete": "dynamodb:DeleteItem",
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
}

_CALLS: Mapping[str, Callable[[Line], Iterator[Request]]] = {
    "autoscaling:CompleteLifecycleAction": _group,
    "autoscaling:DescribeAutoScalingGroups": _anything,
    "autoscaling:RecordLifecycleActionHeartbeat": _group,
    "autoscaling:SetInstanceHealth": _group,
    "cloudformation:SignalResource": _stack,
    "dynamodb:BatchGetItem": _on_batch,
    "dynamodb:GetItem": _on_item,
    "dynamodb:PutItem": _on_item,
    "dynamodb:TransactWriteItems": _on_transaction,
    "ec2:AssociateAddress": _address,
    "ec2:DescribeInstances": _anything,
    "logs:CreateLogStream": _log_stream,
    "logs:PutLogEvents": _log_stream,
}
