"""List what calls to DynamoDB require: a permission on each table, with the partition keys of the items."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from moto.dynamodb.models import dynamodb_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller
from local.control_plane.authorization.keys import through_service
from local.policy_evaluation.policies import LEADING_KEYS, Permission

_READING: Final = ("Decrypt", "DescribeKey")
_WRITING: Final = ("Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
"""Actions that use a table's key. AWS does not list them by call, so these are what the CDK grants with the table."""
_WRITES: Final = ("BatchWriteItem", "DeleteItem", "PutItem", "UpdateItem")
_EQUALS: Final = re.compile(r"([#\w.-]+)\s*=\s*(:\w+)")


def _anything(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(request)


def _encryption_key(request: ApiRequest, caller: Caller, table: str) -> Iterator[Permission]:
    """Require the key that the user named for the table, which DynamoDB uses on the caller's behalf."""
    stored_table = dynamodb_backends[caller.account][request.credential.region].tables.get(table.rsplit("/", 1)[-1])
    encryption = (stored_table.sse_specification or {}) if stored_table else {}
    for use in (*_READING, *(_WRITING if request.action in _WRITES else ())):
        yield from through_service(request, caller, encryption.get("KMSMasterKeyId", ""), use)


def _table(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the complete table; without leading keys in the request, ForAllValues is true."""
    yield caller.permission(request, _arn(request, caller, request.parameters["TableName"]))


def _item(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    table = request.parameters["TableName"]
    yield _on_items(request, caller, table, [_key(request.parameters)])
    yield from _encryption_key(request, caller, table)


def _batch_read(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    for table, read in request.parameters["RequestItems"].items():
        yield _on_items(request, caller, table, read["Keys"])
        yield from _encryption_key(request, caller, table)


def _batch_write(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    for table, writes in request.parameters["RequestItems"].items():
        keys = [_key(write) for item in writes for write in item.values()]
        yield _on_items(request, caller, table, keys)


def _transaction(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require for each item what it would require alone ("IAM and transactions", Amazon DynamoDB Developer Guide)."""
    for item in request.parameters["TransactItems"]:
        for kind, operation in item.items():
            yield _on_items(request, caller, operation["TableName"], [_key(operation)], action=_IN_TRANSACTION[kind])


def _query(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the partition key in the query's condition."""
    parameters = request.parameters
    names, values = parameters.get("ExpressionAttributeNames", {}), parameters.get("ExpressionAttributeValues", {})
    equal = _EQUALS.findall(parameters.get("KeyConditionExpression", ""))
    keys = [{names.get(name, name): values.get(value, {})} for name, value in equal]
    yield _on_items(request, caller, parameters["TableName"], keys)


def _key(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item's key, or the item that contains it."""
    key: Mapping[str, Any] = parameters.get("Key") or parameters.get("Item") or {}
    return key


def _on_items(
    request: ApiRequest, caller: Caller, table: str, keys: Iterable[Mapping[str, Any]], *, action: str | None = None
) -> Permission:
    partition_key = _partition_key(request, caller, table)
    values = [value for key in keys for value in key.get(partition_key, {}).values()]
    leading = tuple(str(value) for value in values)
    context = {LEADING_KEYS: leading} if leading else {}
    return caller.permission(request, _arn(request, caller, table), action=action, context=context)


def _partition_key(request: ApiRequest, caller: Caller, table: str) -> str:
    stored_table = dynamodb_backends[caller.account][request.credential.region].tables.get(table.rsplit("/", 1)[-1])
    return str(stored_table.hash_key_attr) if stored_table else ""


def _arn(request: ApiRequest, caller: Caller, table: str) -> str:
    return table if table.startswith("arn:") else caller.arn(request, f"table/{table}")


_IN_TRANSACTION: Final = {
    "ConditionCheck": "ConditionCheckItem",
    "Delete": "DeleteItem",
    "Get": "GetItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}

CALLS: Final[Mapping[str, Callable[[ApiRequest, Caller], Iterator[Permission]]]] = {
    "BatchGetItem": _batch_read,
    "BatchWriteItem": _batch_write,
    "DeleteItem": _item,
    "DeleteTable": _table,
    "DescribeTable": _table,
    "GetItem": _item,
    "ListTables": _anything,
    "PutItem": _item,
    "Query": _query,
    "Scan": _table,
    "TransactGetItems": _transaction,
    "TransactWriteItems": _transaction,
    "UpdateItem": _item,
}
