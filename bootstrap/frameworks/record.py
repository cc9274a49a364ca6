"""The record in the cluster's table that says which environment is the right one: its SHA-256.

Only the master's role may write it, while more can write into the bucket; so what the bucket has is believed
when it has this hash, and not before.
"""

from typing import TYPE_CHECKING

from bootstrap.cluster.record_fields import RecordError
from bootstrap.cluster.records import parse_environment
from bootstrap.contract import (
    ENGINES_RECORD_ID,
    ENVIRONMENT_FIELD,
    RECORD_VERSION,
    SHA256_FIELD,
    TABLE_KEY,
    VERSION_FIELD,
)
from bootstrap.errors import FrameworkError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class HashRecord:
    """The one record; the newest build of a master stands in it."""

    def __init__(self, client: "DynamoDBClient", *, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, environment: str) -> str | None:
        """Return the hash of an environment's archive; None if there is none, or one of another environment.

        Raises FrameworkError if the record cannot be used.
        """
        key = {TABLE_KEY: {"S": ENGINES_RECORD_ID}}
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        try:
            record = parse_environment(item)
        except RecordError as error:
            raise FrameworkError("bad record", f"record {ENGINES_RECORD_ID}: {error}") from error
        return record.sha256 if record.environment == environment else None

    def write(self, environment: str, sha256: str) -> None:
        """Vouch for what the bucket has."""
        self._client.put_item(
            TableName=self._table,
            Item={
                TABLE_KEY: {"S": ENGINES_RECORD_ID},
                VERSION_FIELD: {"N": str(RECORD_VERSION)},
                ENVIRONMENT_FIELD: {"S": environment},
                SHA256_FIELD: {"S": sha256},
            },
        )
