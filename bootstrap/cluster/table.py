"""Read and write the cluster's table: one item for the membership, one for its generation, one for each node."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from botocore.exceptions import ClientError

from bootstrap.cluster.membership import NO_MEMBERSHIP, Member, Membership, members_to_json
from bootstrap.cluster.record_validation import Networks, RecordError
from bootstrap.cluster.records import (
    Item,
    NodeRecord,
    parse_generation,
    parse_membership,
    parse_node,
    usable_members,
)
from bootstrap.contract import (
    DESIRED_NODES_FIELD,
    DRAINING_FIELD,
    GENERATION_FIELD,
    GENERATION_ID,
    HOST_KEY_FIELD,
    IDLE_REPORT_FIELD,
    INSTANCE_ID_FIELD,
    MASTER_TRAINS_FIELD,
    MEMBERS_FIELD,
    MEMBERSHIP_ID,
    MOUNT_FIELD,
    NODE_TYPE_FIELD,
    RECORD_VERSION,
    RELEASE_FIELD,
    SETUP_FIELD,
    SHARED_STORAGE_FIELD,
    SSH_KEY_FIELD,
    TABLE_KEY,
    TEAM_KEYS_FIELD,
    VERSION_FIELD,
)
from bootstrap.errors import TableBusyError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import KeysAndAttributesTypeDef, PutTypeDef

log = logging.getLogger(__name__)

BATCH: Final = 100
"""Largest number of keys in a BatchGetItem."""
BATCH_ATTEMPTS: Final = 5
"""Number of consecutive answers without any item after which a batch is abandoned."""
NODE_FIELDS: Final = {
    f"#{number}": name
    for number, name in enumerate(
        (
            TABLE_KEY,
            VERSION_FIELD,
            INSTANCE_ID_FIELD,
            NODE_TYPE_FIELD,
            HOST_KEY_FIELD,
            DRAINING_FIELD,
            SSH_KEY_FIELD,
            MOUNT_FIELD,
            SETUP_FIELD,
            RELEASE_FIELD,
            IDLE_REPORT_FIELD,
        )
    )
}
"""Fields to read of a node's own record, by placeholder; the node may have written others, up to 400 KB."""
LOST_RACE: Final = frozenset({"ConditionalCheckFailed", "TransactionConflict"})
"""Reasons of a transaction that DynamoDB cancelled because two writers met (TransactWriteItems)."""
BUSY: Final = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
    }
)
"""Errors, and reasons of a cancelled transaction, after which a retry may succeed (TransactWriteItems, PutItem). The
client itself retries throttled calls, but neither cancelled transactions nor conflicts."""
BUSY_PAUSES_S: Final = (0.2, 0.4, 0.8)
"""Seconds before each retry: short, because a draining node also writes its record here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Membership as the coordinator finds it in the table."""

    membership: Membership
    """The stored membership; if its record is bad, only its valid members."""
    error: str | None = None
    """Reason why both records must be rewritten, or None."""
    condition: Mapping[str, Any]
    """Condition for a write: no other process has replaced the record in the meantime."""


class Table:
    """Reads and writes the records; a lost race is a result, not an error."""

    def __init__(
        self,
        client: "DynamoDBClient",
        *,
        name: str,
        networks: Networks,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._name = name
        self._networks = networks
        self._sleep = sleep
        self.idle_reports: dict[str, str] = {}
        """Idle report in each node's record at the last read, by record ID; bootstrap.idle parses it."""

    def read_generation(self, *, consistent: bool = False) -> int:
        """Return the membership's generation, eventually consistent: far cheaper than the membership."""
        item = self.read_record(GENERATION_ID, consistent=consistent)
        return parse_generation(item) if item else NO_MEMBERSHIP.generation

    def read_membership(self) -> Membership:
        """Return the current membership; NO_MEMBERSHIP if there is none yet. Raises RecordError."""
        item = self.read_record(MEMBERSHIP_ID, consistent=True)
        return _parse_membership(item, self._networks) if item else NO_MEMBERSHIP

    def read_stored(self) -> Stored:
        """Return the current membership for a replacement; a bad record is a result, not an error."""
        item = self.read_record(MEMBERSHIP_ID, consistent=True)
        if item is None:
            return Stored(membership=NO_MEMBERSHIP, condition=_if_absent())
        try:
            membership, reason = _parse_membership(item, self._networks), None
            if self.read_generation(consistent=True) != membership.generation:
                reason = "generation record differs from the membership's generation"
        except RecordError as error:
            membership, reason = _usable_membership(item, self._networks), str(error)
        return Stored(membership=membership, error=reason, condition=_if_unchanged(item.get(GENERATION_FIELD)))

    def read_record(self, record_id: str, *, consistent: bool) -> Item | None:
        """Return a record unparsed; None if there is none."""
        key = {TABLE_KEY: {"S": record_id}}
        return self._client.get_item(TableName=self._name, Key=key, ConsistentRead=consistent).get("Item")

    def replace_membership(self, old: Stored, new: Membership) -> bool:
        """Write the new membership and its generation atomically; return False if another process was faster."""
        generation = {VERSION_FIELD: {"N": str(RECORD_VERSION)}, GENERATION_FIELD: {"N": str(new.generation)}}
        membership = {
            **generation,
            DESIRED_NODES_FIELD: {"N": str(new.desired_nodes)},
            MEMBERS_FIELD: {"S": members_to_json(new.members)},
            **_if_any(SHARED_STORAGE_FIELD, new.shared_storage),
            **_if_any(TEAM_KEYS_FIELD, new.team_keys),
            **({} if new.master_trains else {MASTER_TRAINS_FIELD: {"BOOL": False}}),
        }
        puts = [self._put(MEMBERSHIP_ID, membership, old.condition), self._put(GENERATION_ID, generation)]
        try:
            self._write(lambda: self._client.transact_write_items(TransactItems=[{"Put": put} for put in puts]))
        except self._client.exceptions.TransactionCanceledException as error:
            if _codes(error) & LOST_RACE:
                return False
            raise
        return True

    def _write(self, write: Callable[[], object]) -> None:
        """Write, retrying while the table is busy; any node can keep it busy for a while."""
        for pause in (*BUSY_PAUSES_S, None):
            try:
                write()
            except ClientError as error:
                codes = _codes(error)
                if pause is None or not codes & BUSY or codes - BUSY:
                    raise
            else:
                return
            self._sleep(pause)

    def _put(self, record_id: str, fields: Item, condition: Mapping[str, Any] | None = None) -> "PutTypeDef":
        item = {TABLE_KEY: {"S": record_id}, **fields}
        return cast("PutTypeDef", {"TableName": self._name, "Item": item, **(condition or {})})

    def write_node(self, record: NodeRecord, *, idle_report: str = "") -> None:
        """Write a node's own record."""
        fields: Item = {
            VERSION_FIELD: {"N": str(RECORD_VERSION)},
            INSTANCE_ID_FIELD: {"S": record.instance_id},
            NODE_TYPE_FIELD: {"S": record.node_type},
            HOST_KEY_FIELD: {"S": record.host_key},
            DRAINING_FIELD: {"BOOL": record.draining},
            SSH_KEY_FIELD: {"S": record.ssh_key},
            **_if_any(MOUNT_FIELD, record.mount),
            **_if_any(SETUP_FIELD, record.setup),
            **_if_any(RELEASE_FIELD, record.release),
            **_if_any(IDLE_REPORT_FIELD, idle_report),
        }
        self.write_record(record.record_id, fields)

    def write_record(self, record_id: str, fields: Item) -> None:
        """Write a record that has a single writer."""
        self._write(lambda: self._client.put_item(**self._put(record_id, fields)))

    def read_nodes(self, record_ids: Sequence[str]) -> dict[str, NodeRecord]:
        """Return the nodes' records by record ID, without missing and bad ones."""
        records, self.idle_reports = {}, {}
        for item in self._read_items(record_ids):
            try:
                record = parse_node(item)
            except RecordError as error:
                log.warning("passing over a node's record: %s", error)
            else:
                records[record.record_id] = record
                self.idle_reports[record.record_id] = str(item.get(IDLE_REPORT_FIELD, {}).get("S", ""))
        return records

    def _read_items(self, record_ids: Sequence[str]) -> Iterator[Item]:
        for start in range(0, len(record_ids), BATCH):
            yield from self._read_batch(record_ids[start : start + BATCH])

    def _read_batch(self, record_ids: Sequence[str]) -> Iterator[Item]:
        """Read until no key is left; large records, which any node can write, only take more calls.

        Skip keys that the table never processes. If it processes no key at all, raise TableBusyError.
        """
        keys: list[Mapping[str, Any]] = [{TABLE_KEY: {"S": record_id}} for record_id in record_ids]
        total, failed_attempts = len(keys), 0
        while keys and failed_attempts < BATCH_ATTEMPTS:
            answer = self._client.batch_get_item(RequestItems={self._name: self._node_fields_request(keys)})
            yield from answer["Responses"].get(self._name, [])
            unprocessed = answer["UnprocessedKeys"].get(self._name)
            left = list(unprocessed["Keys"]) if unprocessed else []
            failed_attempts = failed_attempts + 1 if len(left) == len(keys) else 0
            keys = list[Mapping[str, Any]](left)
            if keys:
                # The documentation requires exponential backoff for unprocessed keys.
                self._sleep(0.1 * 2**failed_attempts)
        if keys:
            message = f"table {self._name} left {len(keys)} of {total} keys unread {BATCH_ATTEMPTS} times"
            if len(keys) == total:
                raise TableBusyError(message)
            log.warning("%s", message)

    def _node_fields_request(self, keys: Sequence[Mapping[str, Any]]) -> "KeysAndAttributesTypeDef":
        return {
            "Keys": keys,
            "ConsistentRead": True,
            "ProjectionExpression": ", ".join(NODE_FIELDS),
            "ExpressionAttributeNames": NODE_FIELDS,
        }


def _if_any(name: str, text: str) -> Item:
    return {name: {"S": text}} if text else {}


def _codes(error: ClientError) -> set[str]:
    """Return why a call failed: the reasons of a cancelled transaction, or else the error's code."""
    reasons = {str(reason.get("Code")) for reason in error.response.get("CancellationReasons", [])} - {"None"}
    return reasons or {error.response["Error"]["Code"]}


def _if_absent() -> Mapping[str, Any]:
    return {"ConditionExpression": "attribute_not_exists(#id)", "ExpressionAttributeNames": {"#id": TABLE_KEY}}


def _if_unchanged(generation: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the condition that the record still has the generation attribute that was read."""
    if generation is None:
        return {"ConditionExpression": f"attribute_not_exists({GENERATION_FIELD})"}
    return {
        "ConditionExpression": f"{GENERATION_FIELD} = :old",
        "ExpressionAttributeValues": {":old": generation},
    }


def _parse_membership(item: Item, networks: Networks) -> Membership:
    record = parse_membership(item, networks)
    return Membership(
        generation=record.generation,
        desired_nodes=record.desired_nodes,
        members=tuple(map(Member.of, record.members)),
        shared_storage=record.shared_storage,
        master_trains=record.master_trains,
        team_keys=record.team_keys,
    )


def _usable_membership(item: Item, networks: Networks) -> Membership:
    """Return the membership of a bad record's valid members."""
    try:
        generation = parse_generation(item)
    except RecordError:
        generation = NO_MEMBERSHIP.generation
    members = tuple(map(Member.of, usable_members(item, networks)))
    return Membership(generation=generation, desired_nodes=len(members), members=members)
