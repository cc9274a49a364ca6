"""Read and write the table record with the SHA-256 of the MXNet environment's archive.

Only the master's role may write the record, but others can write to the bucket. A node therefore trusts an archive only
if it has this hash.
"""

from typing import TYPE_CHECKING

from bootstrap.cluster.record_validation import RecordError
from bootstrap.cluster.records import parse_mxnet_environment
from bootstrap.contract import (
    MXNET_ENVIRONMENT_FIELD,
    MXNET_ENVIRONMENT_RECORD_ID,
    RECORD_VERSION,
    SHA256_FIELD,
    TABLE_KEY,
    VERSION_FIELD,
)
from bootstrap.errors import MxnetEnvironmentError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class HashRecord:
    """Record of the archive that a master stored last."""

    def __init__(self, client: "DynamoDBClient", *, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, environment: str) -> str | None:
        """Return the hash of an environment's archive; None if there is no record, or it is for another environment.

        Raises MxnetEnvironmentError if the record is bad.
        """
        key = {TABLE_KEY: {"S": MXNET_ENVIRONMENT_RECORD_ID}}
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        try:
            record = parse_mxnet_environment(item)
        except RecordError as error:
            raise MxnetEnvironmentError("bad record", f"record {MXNET_ENVIRONMENT_RECORD_ID}: {error}") from error
        return record.sha256 if record.environment == environment else None

    def write(self, environment: str, sha256: str) -> None:
        """Record the hash of the archive in the bucket."""
        self._client.put_item(
            TableName=self._table,
            Item={
                TABLE_KEY: {"S": MXNET_ENVIRONMENT_RECORD_ID},
                VERSION_FIELD: {"N": str(RECORD_VERSION)},
                MXNET_ENVIRONMENT_FIELD: {"S": environment},
                SHA256_FIELD: {"S": sha256},
            },
        )
