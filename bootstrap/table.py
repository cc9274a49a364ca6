"""The cluster's table: one item for the membership, one for its generation, one for each node."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from bootstrap.contract import (
    AWAY_FIELD,
    EXPECTED_FIELD,
    GENERATION_FIELD,
    GENERATION_ID,
    HOST_KEY_FIELD,
    INSTANCE_ID_FIELD,
    MEMBERS_FIELD,
    MEMBERSHIP_ID,
    NODE_TYPE_FIELD,
    RECORD_VERSION,
    SSH_KEY_FIELD,
    TABLE_KEY,
    VERSION_FIELD,
)
from bootstrap.errors import RecordError, TableBusyError
from bootstrap.membership import EMPTY, Membership, members_from_json, members_to_json

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import PutTypeDef

log = logging.getLogger(__name__)

KEY: Final = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2}")
BATCH: Final = 100
"""Most keys that BatchGetItem takes."""
BATCH_ATTEMPTS: Final = 5
LOST_RACE: Final = frozenset({"ConditionalCheckFailed", "TransactionConflict"})
"""Reasons for which DynamoDB cancels a transaction when two writers meet (TransactWriteItems)."""

Item = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRecord:
    """What a node says about itself.

    Only the key is vouched for (IAM lets a node write under its own id alone), so readers
    take the instance id and the node type from EC2 and not from here.
    """

    record_id: str
    instance_id: str
    node_type: str
    host_key: str
    away: bool = False
    """It has notice of its end."""
    ssh_key: str = ""
    """Public half of the cluster's key, from a master."""

    def __post_init__(self) -> None:
        # They end up in every node's known hosts and authorized keys: one line, one key, nothing else.
        if not KEY.fullmatch(self.host_key):
            raise RecordError(f"host_key of {self.record_id} must be an ed25519 key, got {self.host_key!r}")
        if self.ssh_key and not KEY.fullmatch(self.ssh_key):
            raise RecordError(f"ssh_key of {self.record_id} must be an ed25519 key, got {self.ssh_key!r}")


class Table:
    """Reads and conditional writes; a race lost is an answer, not an error."""

    def __init__(self, client: "DynamoDBClient", *, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._name = name
        self._sleep = sleep

    def read_generation(self) -> int:
        """The membership's generation as of a moment ago, for a fraction of the price of the membership."""
        item = self._get(GENERATION_ID, consistent=False)
        return _generation(item) if item else EMPTY.generation

    def read_membership(self) -> Membership:
        """The membership as it is now, or the empty one when nobody has written it yet."""
        item = self._get(MEMBERSHIP_ID, consistent=True)
        return _membership(item) if item else EMPTY

    def _get(self, record_id: str, *, consistent: bool) -> Item | None:
        key = {TABLE_KEY: {"S": record_id}}
        return self._client.get_item(TableName=self._name, Key=key, ConsistentRead=consistent).get("Item")

    def replace_membership(self, old: Membership, new: Membership) -> bool:
        """Write the new membership and its generation, both or neither, unless somebody was faster."""
        generation = {VERSION_FIELD: {"N": str(RECORD_VERSION)}, GENERATION_FIELD: {"N": str(new.generation)}}
        membership = {
            **generation,
            EXPECTED_FIELD: {"N": str(new.expected)},
            MEMBERS_FIELD: {"S": members_to_json(new.members)},
        }
        try:
            self._client.transact_write_items(
                TransactItems=[
                    {"Put": self._put(MEMBERSHIP_ID, membership, _still(old))},
                    {"Put": self._put(GENERATION_ID, generation)},
                ]
            )
        except self._client.exceptions.TransactionCanceledException as error:
            reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
            if reasons & LOST_RACE:
                return False
            raise
        return True

    def _put(self, record_id: str, fields: Item, condition: Mapping[str, Any] | None = None) -> "PutTypeDef":
        item = {TABLE_KEY: {"S": record_id}, **fields}
        return cast("PutTypeDef", {"TableName": self._name, "Item": item, **(condition or {})})

    def write_node(self, record: NodeRecord) -> None:
        """Publish a node's own record."""
        self._client.put_item(
            TableName=self._name,
            Item={
                TABLE_KEY: {"S": record.record_id},
                VERSION_FIELD: {"N": str(RECORD_VERSION)},
                INSTANCE_ID_FIELD: {"S": record.instance_id},
                NODE_TYPE_FIELD: {"S": record.node_type},
                HOST_KEY_FIELD: {"S": record.host_key},
                AWAY_FIELD: {"BOOL": record.away},
                SSH_KEY_FIELD: {"S": record.ssh_key},
            },
        )

    def read_nodes(self, record_ids: Sequence[str]) -> dict[str, NodeRecord]:
        """The records that exist, by record id; one that cannot be used is as good as none."""
        records = {}
        for item in self._items(record_ids):
            try:
                record = _node(item)
            except RecordError as error:
                log.warning("%s", error)
            else:
                records[record.record_id] = record
        return records

    def _items(self, record_ids: Sequence[str]) -> Iterator[Item]:
        for start in range(0, len(record_ids), BATCH):
            yield from self._batch(record_ids[start : start + BATCH])

    def _batch(self, record_ids: Iterable[str]) -> Iterator[Item]:
        keys: list[Mapping[str, Any]] = [{TABLE_KEY: {"S": record_id}} for record_id in record_ids]
        for attempt in range(BATCH_ATTEMPTS):
            answer = self._client.batch_get_item(RequestItems={self._name: {"Keys": keys, "ConsistentRead": True}})
            yield from answer["Responses"].get(self._name, [])
            left = answer["UnprocessedKeys"].get(self._name)
            if not left:
                return
            keys = list(left["Keys"])
            # The documentation asks for exponential backoff on unprocessed keys.
            self._sleep(0.1 * 2**attempt)
        raise TableBusyError(f"table {self._name} left {len(keys)} keys unread {BATCH_ATTEMPTS} times")


def _still(old: Membership) -> Mapping[str, Any]:
    """The condition that the table holds the membership that the new one was made from."""
    if old.generation == EMPTY.generation:
        return {"ConditionExpression": "attribute_not_exists(#id)", "ExpressionAttributeNames": {"#id": TABLE_KEY}}
    return {
        "ConditionExpression": f"{GENERATION_FIELD} = :old",
        "ExpressionAttributeValues": {":old": {"N": str(old.generation)}},
    }


def _generation(item: Item) -> int:
    _check_version(item)
    try:
        return int(item[GENERATION_FIELD]["N"])
    except (KeyError, ValueError) as error:
        raise RecordError(f"generation record is incomplete: {error!r}") from error


def _membership(item: Item) -> Membership:
    try:
        return Membership(
            generation=_generation(item),
            expected=int(item[EXPECTED_FIELD]["N"]),
            members=members_from_json(item[MEMBERS_FIELD]["S"]),
        )
    except (KeyError, ValueError) as error:
        raise RecordError(f"membership record is incomplete: {error!r}") from error


def _node(item: Item) -> NodeRecord:
    _check_version(item)
    try:
        return NodeRecord(
            record_id=item[TABLE_KEY]["S"],
            instance_id=item[INSTANCE_ID_FIELD]["S"],
            node_type=item[NODE_TYPE_FIELD]["S"],
            host_key=item[HOST_KEY_FIELD]["S"],
            away=bool(item.get(AWAY_FIELD, {}).get("BOOL", False)),
            ssh_key=item.get(SSH_KEY_FIELD, {}).get("S", ""),
        )
    except KeyError as error:
        raise RecordError(f"node record is incomplete: {error!r}") from error


def _check_version(item: Item) -> None:
    """A newer agent's record is as good as ours: what it adds is passed over, what it lacks is an error."""
    found = item.get(VERSION_FIELD, {}).get("N", "")
    if not found.isdigit() or int(found) < RECORD_VERSION:
        raise RecordError(f"record version must be {RECORD_VERSION} or higher, got {found or 'none'}")
