"""Check reads and conditional writes of the cluster's table."""

from dataclasses import replace

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from bootstrap.cluster.membership import NO_MEMBERSHIP, Membership
from bootstrap.cluster.record_validation import RecordError
from bootstrap.cluster.table import Table
from bootstrap.contract import GENERATION_ID, MEMBERSHIP_ID, TABLE_KEY
from bootstrap.failures import RETRYABLE_ERRORS
from tests.bootstrap.cluster.table_records import NOTHING_STORED, StubbedTable, worker_record
from tests.bootstrap.identities import instance_id, public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import TABLE


def test_membership_is_empty_before_the_first_write(table: Table) -> None:
    assert table.read_membership() == NO_MEMBERSHIP


def test_membership_write_requires_the_last_generation(table: Table) -> None:
    first, nothing = Membership(generation=1, desired_nodes=2, members=()), table.read_stored()
    assert table.replace_membership(nothing, first)
    assert not table.replace_membership(nothing, first)
    second, seen = Membership(generation=2, desired_nodes=3, members=()), table.read_stored()
    assert table.replace_membership(seen, second)
    assert not table.replace_membership(seen, second)
    assert table.read_membership() == second


def test_membership_and_its_generation_are_written_together(table: Table) -> None:
    assert table.read_generation() == 0
    first, nothing = Membership(generation=1, desired_nodes=2, members=()), table.read_stored()
    table.replace_membership(nothing, first)
    assert table.read_generation() == 1
    # Both records of another coordinator's write stay.
    lost = Membership(generation=1, desired_nodes=9, members=())
    assert not table.replace_membership(nothing, lost)
    assert (table.read_generation(), table.read_membership()) == (1, first)


def test_generation_read_is_eventual_and_membership_read_consistent(stubbed: StubbedTable) -> None:
    stubber, table = stubbed.stubber, stubbed.table
    for record_id, consistent in ((GENERATION_ID, False), (MEMBERSHIP_ID, True)):
        asked = {"TableName": TABLE, "Key": {TABLE_KEY: {"S": record_id}}, "ConsistentRead": consistent}
        stubber.add_response("get_item", {}, asked)
    assert table.read_generation() == 0
    assert table.read_membership() == NO_MEMBERSHIP
    stubber.assert_no_pending_responses()


def _cancelled(stubber: Stubber, *codes: str) -> None:
    stubber.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        "Transaction cancelled",
        modeled_fields={"CancellationReasons": [{"Code": code} for code in codes]},
    )


@pytest.mark.parametrize(
    "codes",
    [
        ("ConditionalCheckFailed", "None"),
        ("ConditionalCheckFailed", "TransactionConflict"),
        ("ConditionalCheckFailed", "ThrottlingError"),
    ],
)
def test_lost_race_returns_false(stubbed: StubbedTable, codes: tuple[str, ...]) -> None:
    stubber, table = stubbed.stubber, stubbed.table
    _cancelled(stubber, *codes)
    assert not table.replace_membership(NOTHING_STORED, Membership(generation=1, desired_nodes=2, members=()))


FIRST = Membership(generation=1, desired_nodes=2, members=())


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"])
@pytest.mark.parametrize("place", [0, 1])
def test_transaction_that_a_busy_table_cancels_is_tried_again(stubbed: StubbedTable, code: str, place: int) -> None:
    stubber, table, waits = stubbed.stubber, stubbed.table, stubbed.waits
    for _ in range(3):
        _cancelled(stubber, *("None", code)[:: 1 if place else -1])
    stubber.add_response("transact_write_items", {})
    assert table.replace_membership(NOTHING_STORED, FIRST)
    assert waits == [0.2, 0.4, 0.8]
    stubber.assert_no_pending_responses()


THROTTLED = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")


@pytest.mark.parametrize("code", [*THROTTLED, "TransactionConflictException"])
def test_write_that_a_busy_table_refuses_is_tried_again(stubbed: StubbedTable, code: str) -> None:
    stubber, table, waits = stubbed.stubber, stubbed.table, stubbed.waits
    for operation, write in (
        ("put_item", lambda: table.write_node(worker_record(1))),
        ("transact_write_items", lambda: table.replace_membership(NOTHING_STORED, FIRST)),
    ):
        stubber.add_client_error(operation, code, "slow down")
        stubber.add_response(operation, {})
        write()
    assert waits == [0.2, 0.2]
    stubber.assert_no_pending_responses()


def test_lasting_transaction_conflict_counts_as_a_lost_race(stubbed: StubbedTable) -> None:
    stubber, table, waits = stubbed.stubber, stubbed.table, stubbed.waits
    for _ in range(4):
        _cancelled(stubber, "TransactionConflict", "None")
    assert not table.replace_membership(NOTHING_STORED, FIRST)
    assert len(waits) == 3


@pytest.mark.parametrize(("code", "tries"), [("ThrottlingError", 4), ("ValidationError", 1)])
def test_transaction_that_stays_cancelled_is_a_retryable_error(stubbed: StubbedTable, code: str, tries: int) -> None:
    stubber, table, waits = stubbed.stubber, stubbed.table, stubbed.waits
    for _ in range(tries):
        _cancelled(stubber, "None", code)
    with pytest.raises(ClientError, match="Transaction cancelled") as error:
        table.replace_membership(NOTHING_STORED, FIRST)
    assert isinstance(error.value, RETRYABLE_ERRORS)
    assert len(waits) == tries - 1


def test_refused_transaction_is_not_retried(stubbed: StubbedTable) -> None:
    stubber, table, waits = stubbed.stubber, stubbed.table, stubbed.waits
    stubber.add_client_error("transact_write_items", "AccessDeniedException", "not yours")
    with pytest.raises(ClientError, match="not yours"):
        table.replace_membership(NOTHING_STORED, FIRST)
    assert not waits


def test_invalid_record_does_not_hide_others(cluster: SimulatedCluster, table: Table) -> None:
    table.write_node(worker_record(1))
    for record_id, host_key in (("AROA:i-2", f"{public_key(2)}\nevil {public_key(2)}"), ("AROA:i-3", "")):
        cluster.clients.dynamodb.put_item(
            TableName=TABLE,
            Item={
                TABLE_KEY: {"S": record_id},
                "version": {"N": "2"},
                "instance_id": {"S": instance_id(1)},
                "node_type": {"S": "master"},
                "host_key": {"S": host_key},
            },
        )
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2", "AROA:i-3"])) == ["AROA:i-1"]


def test_unknown_fields_of_newer_agents_are_ignored(cluster: SimulatedCluster, table: Table) -> None:
    membership = Membership(generation=1, desired_nodes=2, members=())
    table.replace_membership(NOTHING_STORED, membership)
    table.write_node(worker_record(1))
    for record_id in (MEMBERSHIP_ID, worker_record(1).record_id):
        cluster.clients.dynamodb.update_item(
            TableName=TABLE,
            Key={TABLE_KEY: {"S": record_id}},
            UpdateExpression="SET made_by = :newer",
            ExpressionAttributeValues={":newer": {"S": "a newer agent"}},
        )
    assert table.read_membership() == membership
    assert table.read_nodes([worker_record(1).record_id]) == {worker_record(1).record_id: worker_record(1)}


@pytest.mark.parametrize("version", ["2", "17"])
def test_records_of_newer_agents_are_read(cluster: SimulatedCluster, table: Table, version: str) -> None:
    membership = Membership(generation=3, desired_nodes=2, members=())
    table.replace_membership(NOTHING_STORED, membership)
    table.write_node(worker_record(1))
    for record_id in (MEMBERSHIP_ID, GENERATION_ID, worker_record(1).record_id):
        set_version(cluster, record_id, {"N": version})
    assert table.read_membership() == membership
    assert table.read_generation() == 3
    assert table.read_nodes([worker_record(1).record_id]) == {worker_record(1).record_id: worker_record(1)}


@pytest.mark.parametrize(("version", "named"), [({"N": "0"}, "'0'"), ({"S": "1"}, "a dict"), ({"N": "-1"}, "'-1'")])
def test_invalid_record_version_is_named_in_the_error(
    cluster: SimulatedCluster, table: Table, version: dict[str, str], named: str
) -> None:
    table.replace_membership(NOTHING_STORED, Membership(generation=1, desired_nodes=2, members=()))
    for record_id, read in ((MEMBERSHIP_ID, table.read_membership), (GENERATION_ID, table.read_generation)):
        set_version(cluster, record_id, version)
        with pytest.raises(RecordError, match=f"record version must be .*, got {named}"):
            read()


@pytest.mark.parametrize(("record_id", "field"), [(MEMBERSHIP_ID, "members"), (GENERATION_ID, "generation")])
def test_reading_fails_when_a_newer_record_has_no_required_field(
    cluster: SimulatedCluster, table: Table, record_id: str, field: str
) -> None:
    table.replace_membership(NOTHING_STORED, Membership(generation=1, desired_nodes=2, members=()))
    set_version(cluster, record_id, {"N": "2"}, remove=field)
    read = table.read_membership if record_id == MEMBERSHIP_ID else table.read_generation
    with pytest.raises(RecordError, match=f"{field} must be an attribute of type ., got none"):
        read()


def set_version(
    cluster: SimulatedCluster, record_id: str, version: dict[str, str], *, remove: str | None = None
) -> None:
    cluster.clients.dynamodb.update_item(
        TableName=TABLE,
        Key={TABLE_KEY: {"S": record_id}},
        UpdateExpression="SET version = :other" + (f" REMOVE {remove}" if remove else ""),
        ExpressionAttributeValues={":other": version},
    )


def test_node_record_contains_draining_and_the_key(table: Table) -> None:
    output = replace(worker_record(1), draining=True, ssh_key=public_key("cluster"))
    table.write_node(output)
    assert table.read_nodes([output.record_id]) == {output.record_id: output}


def test_records_of_older_agents_are_read_without_a_key(cluster: SimulatedCluster, table: Table) -> None:
    table.write_node(worker_record(1))
    cluster.clients.dynamodb.update_item(
        TableName=TABLE, Key={TABLE_KEY: {"S": worker_record(1).record_id}}, UpdateExpression="REMOVE away, ssh_key"
    )
    assert table.read_nodes([worker_record(1).record_id]) == {worker_record(1).record_id: worker_record(1)}


@pytest.mark.parametrize("key", ["ssh-rsa AAAA", f"{public_key(1)} comment", f'{public_key(1)}\nfrom="0.0.0.0/0" ssh'])
def test_record_with_anything_but_one_ssh_key_is_refused(key: str) -> None:
    with pytest.raises(RecordError, match="ssh_key of 'AROA:i-1' must be an ed25519 key"):
        replace(worker_record(1), ssh_key=key)
