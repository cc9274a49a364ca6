"""The record in the cluster's table that says which environment is the right one: its SHA-256.

Only the master's role may write it, while more can write into the bucket; so what the bucket has is believed
when it has this hash, and not before.
"""

import re
from typing import TYPE_CHECKING, Final

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

SHA256: Final = re.compile(r"[0-9a-f]{64}")


class HashRecord:
    """The one record; the newest build of a master stands in it."""

    def __init__(self, client: "DynamoDBClient", *, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, environment: str) -> str | None:
        """The hash of an environment's archive; None where there is none, or one of another environment.

        Raises EnginesError for what is no hash.
        """
        key = {TABLE_KEY: {"S": ENGINES_RECORD_ID}}
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item", {})
        if item.get(ENVIRONMENT_FIELD) != {"S": environment}:
            return None
        found = item.get(SHA256_FIELD, {}).get("S", "")
        if not SHA256.fullmatch(found):
            detail = f"{SHA256_FIELD} of record {ENGINES_RECORD_ID} must be 64 hex digits, got {found[:80]!r}"
            raise FrameworkError("bad record", detail)
        return found

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
