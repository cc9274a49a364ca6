from collections.abc import Iterator
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from bootstrap.contract import GENERATION_ID, MEMBERSHIP_ID, TABLE_KEY
from bootstrap.errors import RecordError, TableBusyError
from bootstrap.membership import EMPTY, Membership
from bootstrap.table import NodeRecord, Table
from tests.bootstrap.cluster import TABLE, Cluster

Stubbed = tuple[Stubber, Table, list[float]]
"""DynamoDB's scripted answers, a table that gets them, and how long it waited."""


def record(number: int) -> NodeRecord:
    return NodeRecord(
        record_id=f"AROA:i-{number}",
        instance_id=f"i-{number}",
        node_type="worker",
        host_key=f"ssh-ed25519 AAAA{number}",
    )


@pytest.fixture
def table(cluster: Cluster) -> Table:
    return Table(cluster.clients.dynamodb, name=TABLE)


@pytest.fixture
def stubbed(cluster: Cluster) -> Iterator[Stubbed]:
    waits: list[float] = []
    with Stubber(cluster.clients.dynamodb) as stubber:
        yield stubber, Table(cluster.clients.dynamodb, name=TABLE, sleep=waits.append), waits


def test_membership_is_empty_before_the_first_write(table: Table) -> None:
    assert table.read_membership() == EMPTY


def test_membership_is_replaced_only_by_who_saw_the_last_one(table: Table) -> None:
    first = Membership(generation=1, expected=2, members=())
    assert table.replace_membership(EMPTY, first)
    assert not table.replace_membership(EMPTY, first)
    second = Membership(generation=2, expected=3, members=())
    assert table.replace_membership(first, second)
    assert not table.replace_membership(first, second)
    assert table.read_membership() == second


def test_membership_and_its_generation_are_written_together(cluster: Cluster, table: Table) -> None:
    assert table.read_generation() == 0
    first = Membership(generation=1, expected=2, members=())
    table.replace_membership(EMPTY, first)
    assert table.read_generation() == 1
    # What another coordinator wrote meanwhile stays, both of it.
    lost = Membership(generation=1, expected=9, members=())
    assert not table.replace_membership(EMPTY, lost)
    ahead = Membership(generation=8, expected=9, members=())
    assert not table.replace_membership(Membership(generation=7, expected=9, members=()), ahead)
    assert (table.read_generation(), table.read_membership()) == (1, first)


def test_generation_is_read_cheaply_and_the_membership_as_it_is_now(stubbed: Stubbed) -> None:
    stubber, table, _ = stubbed
    for record_id, consistent in ((GENERATION_ID, False), (MEMBERSHIP_ID, True)):
        asked = {"TableName": TABLE, "Key": {TABLE_KEY: {"S": record_id}}, "ConsistentRead": consistent}
        stubber.add_response("get_item", {}, asked)
    assert table.read_generation() == 0
    assert table.read_membership() == EMPTY
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
        ("TransactionConflict", "None"),
        ("None", "TransactionConflict"),
        ("TransactionConflict", "TransactionConflict"),
    ],
)
def test_race_that_is_lost_is_an_answer(stubbed: Stubbed, codes: tuple[str, ...]) -> None:
    stubber, table, _ = stubbed
    _cancelled(stubber, *codes)
    assert not table.replace_membership(EMPTY, Membership(generation=1, expected=2, members=()))


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "ValidationError"])
def test_fails_when_a_transaction_is_cancelled_for_anything_else(stubbed: Stubbed, code: str) -> None:
    stubber, table, _ = stubbed
    _cancelled(stubber, "None", code)
    with pytest.raises(ClientError, match="Transaction cancelled"):
        table.replace_membership(EMPTY, Membership(generation=1, expected=2, members=()))


def test_fails_when_the_table_refuses_a_transaction(stubbed: Stubbed) -> None:
    stubber, table, _ = stubbed
    stubber.add_client_error("transact_write_items", "AccessDeniedException", "not yours")
    with pytest.raises(ClientError, match="not yours"):
        table.replace_membership(EMPTY, Membership(generation=1, expected=2, members=()))


def test_node_records_of_a_large_cluster_are_read_in_batches(table: Table) -> None:
    for number in range(130):
        table.write_node(record(number))
    ids = [record(number).record_id for number in range(130)]
    assert table.read_nodes([*ids, "AROA:i-absent"]) == {each: record(n) for n, each in enumerate(ids)}


def test_record_that_cannot_be_used_hides_no_other(cluster: Cluster, table: Table) -> None:
    table.write_node(record(1))
    for record_id, host_key in (("AROA:i-2", "ssh-ed25519 AAAA\nevil ssh-ed25519 BBBB"), ("AROA:i-3", "")):
        cluster.clients.dynamodb.put_item(
            TableName=TABLE,
            Item={
                TABLE_KEY: {"S": record_id},
                "version": {"N": "1"},
                "instance_id": {"S": "i-1"},
                "node_type": {"S": "master"},
                "host_key": {"S": host_key},
            },
        )
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2", "AROA:i-3"])) == ["AROA:i-1"]


def test_keys_of_newer_agents_are_passed_over(cluster: Cluster, table: Table) -> None:
    membership = Membership(generation=1, expected=2, members=())
    table.replace_membership(EMPTY, membership)
    table.write_node(record(1))
    for record_id in (MEMBERSHIP_ID, record(1).record_id):
        cluster.clients.dynamodb.update_item(
            TableName=TABLE,
            Key={TABLE_KEY: {"S": record_id}},
            UpdateExpression="SET made_by = :newer",
            ExpressionAttributeValues={":newer": {"S": "a newer agent"}},
        )
    assert table.read_membership() == membership
    assert table.read_nodes([record(1).record_id]) == {record(1).record_id: record(1)}


@pytest.mark.parametrize("version", ["2", "17"])
def test_records_of_newer_agents_are_read(cluster: Cluster, table: Table, version: str) -> None:
    membership = Membership(generation=3, expected=2, members=())
    table.replace_membership(EMPTY, membership)
    table.write_node(record(1))
    for record_id in (MEMBERSHIP_ID, GENERATION_ID, record(1).record_id):
        set_version(cluster, record_id, {"N": version})
    assert table.read_membership() == membership
    assert table.read_generation() == 3
    assert table.read_nodes([record(1).record_id]) == {record(1).record_id: record(1)}


@pytest.mark.parametrize(("version", "named"), [({"N": "0"}, "0"), ({"S": "1"}, "none"), ({"N": "-1"}, "-1")])
def test_fails_when_the_version_of_a_record_is_none(
    cluster: Cluster, table: Table, version: dict[str, str], named: str
) -> None:
    table.replace_membership(EMPTY, Membership(generation=1, expected=2, members=()))
    for record_id, read in ((MEMBERSHIP_ID, table.read_membership), (GENERATION_ID, table.read_generation)):
        set_version(cluster, record_id, version)
        with pytest.raises(RecordError, match=f"record version must be 1 or higher, got {named}"):
            read()


@pytest.mark.parametrize(("record_id", "field"), [(MEMBERSHIP_ID, "members"), (GENERATION_ID, "generation")])
def test_fails_when_a_newer_record_lacks_what_we_need(
    cluster: Cluster, table: Table, record_id: str, field: str
) -> None:
    table.replace_membership(EMPTY, Membership(generation=1, expected=2, members=()))
    set_version(cluster, record_id, {"N": "2"}, remove=field)
    read = table.read_membership if record_id == MEMBERSHIP_ID else table.read_generation
    with pytest.raises(RecordError, match=f"record is incomplete: KeyError\\('{field}'\\)"):
        read()


def set_version(cluster: Cluster, record_id: str, version: dict[str, str], *, remove: str | None = None) -> None:
    cluster.clients.dynamodb.update_item(
        TableName=TABLE,
        Key={TABLE_KEY: {"S": record_id}},
        UpdateExpression="SET version = :other" + (f" REMOVE {remove}" if remove else ""),
        ExpressionAttributeValues={":other": version},
    )


def test_node_says_that_it_is_away_and_what_its_key_is(table: Table) -> None:
    said = replace(record(1), away=True, ssh_key="ssh-ed25519 AAAAkey")
    table.write_node(said)
    assert table.read_nodes([said.record_id]) == {said.record_id: said}


def test_node_records_of_older_agents_are_there_and_have_no_key(cluster: Cluster, table: Table) -> None:
    table.write_node(record(1))
    cluster.clients.dynamodb.update_item(
        TableName=TABLE, Key={TABLE_KEY: {"S": record(1).record_id}}, UpdateExpression="REMOVE away, ssh_key"
    )
    assert table.read_nodes([record(1).record_id]) == {record(1).record_id: record(1)}


@pytest.mark.parametrize("key", ["ssh-rsa AAAA", "ssh-ed25519 AAAA comment", 'ssh-ed25519 AAAA\nfrom="0.0.0.0/0" ssh'])
def test_key_of_a_record_is_one_key_and_nothing_else(key: str) -> None:
    with pytest.raises(RecordError, match="ssh_key of AROA:i-1 must be an ed25519 key"):
        replace(record(1), ssh_key=key)


def _answer(numbers: list[int], *, left: list[int]) -> dict[str, object]:
    items = [
        {
            TABLE_KEY: {"S": record(number).record_id},
            "version": {"N": "1"},
            "instance_id": {"S": record(number).instance_id},
            "node_type": {"S": "worker"},
            "host_key": {"S": record(number).host_key},
        }
        for number in numbers
    ]
    keys = [{TABLE_KEY: {"S": record(number).record_id}} for number in left]
    return {"Responses": {TABLE: items}, "UnprocessedKeys": {TABLE: {"Keys": keys}} if left else {}}


def _request(numbers: list[int]) -> dict[str, object]:
    keys = [{TABLE_KEY: {"S": record(number).record_id}} for number in numbers]
    return {"RequestItems": {TABLE: {"Keys": keys, "ConsistentRead": True}}}


def test_unprocessed_keys_are_asked_for_again(stubbed: Stubbed) -> None:
    stubber, table, waits = stubbed
    stubber.add_response("batch_get_item", _answer([1], left=[2]), _request([1, 2]))
    stubber.add_response("batch_get_item", _answer([2], left=[]), _request([2]))
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2"])) == ["AROA:i-1", "AROA:i-2"]
    stubber.assert_no_pending_responses()
    assert waits == [0.1]


def test_fails_when_the_table_stays_busy(stubbed: Stubbed) -> None:
    stubber, table, _ = stubbed
    for _attempt in range(5):
        stubber.add_response("batch_get_item", _answer([], left=[1]), _request([1]))
    with pytest.raises(TableBusyError, match="left 1 keys unread 5 times"):
        table.read_nodes(["AROA:i-1"])
