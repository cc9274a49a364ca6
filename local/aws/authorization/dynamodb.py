"""List what calls to DynamoDB require: a permission on each table, with the partition keys of the items."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from moto.dynamodb.models import dynamodb_backends

from local.aws.authorization.callers import Caller
from local.aws.authorization.keys import through_service
from local.aws.calls import ApiRequest
from local.policy_evaluation.policies import LEADING_KEYS, Permission

_READING: Final = ("Decrypt", "DescribeKey")
_WRITING: Final = ("Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
"""Actions that use a table's key. AWS does not list them by call, so these are what the CDK grants with the table."""
_WRITES: Final = ("BatchWriteItem", "DeleteItem", "PutItem", "UpdateItem")
_EQUALS: Final = re.compile(r"([#\w.-]+)\s*=\s*(:\w+)")


def _anything(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(call)


def _key_of(call: ApiRequest, caller: Caller, table: str) -> Iterator[Permission]:
    """Require the key that the user named for the table, which DynamoDB uses on the caller's behalf."""
    found = dynamodb_backends[caller.account][call.credential.region].tables.get(table.rsplit("/", 1)[-1])
    encryption = (found.sse_specification or {}) if found else {}
    for use in (*_READING, *(_WRITING if call.action in _WRITES else ())):
        yield from through_service(call, caller, encryption.get("KMSMasterKeyId", ""), use)


def _table(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the complete table; without leading keys in the request, ForAllValues is true."""
    yield caller.permission(call, _arn(call, caller, call.parameters["TableName"]))


def _item(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    table = call.parameters["TableName"]
    yield _on_items(call, caller, table, [_key(call.parameters)])
    yield from _key_of(call, caller, table)


def _batch_read(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    for table, wanted in call.parameters["RequestItems"].items():
        yield _on_items(call, caller, table, wanted["Keys"])
        yield from _key_of(call, caller, table)


def _batch_write(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    for table, wanted in call.parameters["RequestItems"].items():
        keys = [_key(request) for each in wanted for request in each.values()]
        yield _on_items(call, caller, table, keys)


def _transaction(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require for each item what it would require alone ("IAM and transactions", Amazon DynamoDB Developer Guide)."""
    for item in call.parameters["TransactItems"]:
        for kind, found in item.items():
            yield _on_items(call, caller, found["TableName"], [_key(found)], action=_IN_TRANSACTION[kind])


def _query(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the partition key in the query's condition."""
    asked = call.parameters
    names, values = asked.get("ExpressionAttributeNames", {}), asked.get("ExpressionAttributeValues", {})
    equal = _EQUALS.findall(asked.get("KeyConditionExpression", ""))
    keys = [{names.get(name, name): values.get(value, {})} for name, value in equal]
    yield _on_items(call, caller, asked["TableName"], keys)


def _key(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item's key, or the item that contains it."""
    found: Mapping[str, Any] = parameters.get("Key") or parameters.get("Item") or {}
    return found


def _on_items(
    call: ApiRequest, caller: Caller, table: str, keys: Iterable[Mapping[str, Any]], *, action: str | None = None
) -> Permission:
    partition_key = _partition_key(call, caller, table)
    values = [value for key in keys for value in key.get(partition_key, {}).values()]
    leading = tuple(str(value) for value in values)
    context = {LEADING_KEYS: leading} if leading else {}
    return caller.permission(call, _arn(call, caller, table), action=action, context=context)


def _partition_key(call: ApiRequest, caller: Caller, table: str) -> str:
    found = dynamodb_backends[caller.account][call.credential.region].tables.get(table.rsplit("/", 1)[-1])
    return str(found.hash_key_attr) if found else ""


def _arn(call: ApiRequest, caller: Caller, table: str) -> str:
    return table if table.startswith("arn:") else caller.arn(call, f"table/{table}")


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
