"""The cluster's table: one item for the membership, one for each node."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from bootstrap.contract import MEMBERSHIP_ID, RECORD_VERSION, TABLE_KEY
from bootstrap.errors import RecordError, TableBusyError
from bootstrap.membership import EMPTY, Membership, members_from_json, members_to_json

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

log = logging.getLogger(__name__)

HOST_KEY: Final = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2}")
BATCH: Final = 100
"""Most keys that BatchGetItem takes."""
BATCH_ATTEMPTS: Final = 5

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

    def __post_init__(self) -> None:
        # It ends up in every node's known hosts: one line, one key, nothing else.
        if not HOST_KEY.fullmatch(self.host_key):
            raise RecordError(f"host_key of {self.record_id} must be an ed25519 key, got {self.host_key!r}")


class Table:
    """Reads and conditional writes; a race lost is an answer, not an error."""

    def __init__(self, client: "DynamoDBClient", *, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._name = name
        self._sleep = sleep

    def read_membership(self, *, consistent: bool = False) -> Membership:
        """The membership, or the empty one when nobody has written it yet."""
        answer = self._client.get_item(
            TableName=self._name, Key={TABLE_KEY: {"S": MEMBERSHIP_ID}}, ConsistentRead=consistent
        )
        item = answer.get("Item")
        return _membership(item) if item else EMPTY

    def replace_membership(self, old: Membership, new: Membership) -> bool:
        """Write the new membership unless somebody wrote another in the meantime."""
        item = {
            TABLE_KEY: {"S": MEMBERSHIP_ID},
            "version": {"N": str(RECORD_VERSION)},
            "generation": {"N": str(new.generation)},
            "expected": {"N": str(new.expected)},
            "members": {"S": members_to_json(new.members)},
        }
        try:
            if old.generation == 0:
                self._client.put_item(
                    TableName=self._name,
                    Item=item,
                    ConditionExpression="attribute_not_exists(#id)",
                    ExpressionAttributeNames={"#id": TABLE_KEY},
                )
            else:
                self._client.put_item(
                    TableName=self._name,
                    Item=item,
                    ConditionExpression="generation = :old",
                    ExpressionAttributeValues={":old": {"N": str(old.generation)}},
                )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def write_node(self, record: NodeRecord) -> None:
        """Publish a node's own record."""
        self._client.put_item(
            TableName=self._name,
            Item={
                TABLE_KEY: {"S": record.record_id},
                "version": {"N": str(RECORD_VERSION)},
                "instance_id": {"S": record.instance_id},
                "node_type": {"S": record.node_type},
                "host_key": {"S": record.host_key},
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


def _membership(item: Item) -> Membership:
    _check_version(item)
    try:
        return Membership(
            generation=int(item["generation"]["N"]),
            expected=int(item["expected"]["N"]),
            members=members_from_json(item["members"]["S"]),
        )
    except (KeyError, ValueError) as error:
        raise RecordError(f"membership record is incomplete: {error!r}") from error


def _node(item: Item) -> NodeRecord:
    _check_version(item)
    try:
        return NodeRecord(
            record_id=item[TABLE_KEY]["S"],
            instance_id=item["instance_id"]["S"],
            node_type=item["node_type"]["S"],
            host_key=item["host_key"]["S"],
        )
    except KeyError as error:
        raise RecordError(f"node record is incomplete: {error!r}") from error


def _check_version(item: Item) -> None:
    found = item.get("version", {}).get("N")
    if found != str(RECORD_VERSION):
        raise RecordError(f"record version must be {RECORD_VERSION}, got {found}")
