"""Build records for the cluster's table, and a table whose answers the test scripts."""

from dataclasses import dataclass

from botocore.stub import Stubber

from bootstrap.cluster.membership import NO_MEMBERSHIP
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Stored, Table
from tests.bootstrap.identities import instance_id, public_key

NOTHING_STORED = Stored(membership=NO_MEMBERSHIP, condition={"ConditionExpression": "attribute_not_exists(id)"})


@dataclass(frozen=True, kw_only=True)
class StubbedTable:
    """A table with scripted answers."""

    table: Table
    stubber: Stubber
    waits: list[float]
    """Duration of each pause that the table made, in seconds."""


def worker_record(number: int) -> NodeRecord:
    """Build the record of a worker."""
    return NodeRecord(
        record_id=f"AROA:i-{number}",
        instance_id=instance_id(number),
        node_type="worker",
        host_key=public_key(number),
    )
