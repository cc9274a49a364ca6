from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from botocore.stub import Stubber

from bootstrap.contract import MEMBERSHIP_ID, TABLE_KEY
from bootstrap.errors import RecordError, TableBusyError
from bootstrap.membership import EMPTY, Membership, Node, next_membership
from bootstrap.table import NodeRecord, Table
from tests.bootstrap.conftest import TABLE, Cluster


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


def test_membership_is_empty_before_the_first_write(table: Table) -> None:
    assert table.read_membership() == EMPTY


def test_membership_is_replaced_only_by_who_saw_the_last_one(table: Table) -> None:
    first = Membership(generation=1, expected=2, members=())
    assert table.replace_membership(EMPTY, first)
    assert not table.replace_membership(EMPTY, first)
    second = Membership(generation=2, expected=3, members=())
    assert table.replace_membership(first, second)
    assert not table.replace_membership(first, second)
    assert table.read_membership(consistent=True) == second


def test_racing_writers_lose_no_member(table: Table) -> None:
    writers = 8
    start = Barrier(writers)

    def join(number: int) -> None:
        node = Node(instance_id=f"i-{number}", address="10.0.0.1", node_type="worker", host_key="key")
        start.wait(timeout=30)
        while True:
            seen = table.read_membership(consistent=True)
            if table.replace_membership(seen, next_membership(seen, expected=writers, nodes=[node], gone=())):
                return

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(join, range(writers)))
    final = table.read_membership(consistent=True)
    assert {member.slot for member in final.members} == set(range(2, writers + 2))
    assert {member.instance_id for member in final.members} == {f"i-{n}" for n in range(writers)}
    assert final.generation == writers


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
    assert table.read_membership(consistent=True) == membership
    assert table.read_nodes([record(1).record_id]) == {record(1).record_id: record(1)}


def test_fails_when_the_record_is_of_another_version(cluster: Cluster, table: Table) -> None:
    cluster.clients.dynamodb.put_item(TableName=TABLE, Item={TABLE_KEY: {"S": MEMBERSHIP_ID}, "version": {"N": "2"}})
    with pytest.raises(RecordError, match="record version must be 1, got 2"):
        table.read_membership()


@pytest.fixture
def stubbed(cluster: Cluster) -> Iterator[tuple[Stubber, Table, list[float]]]:
    waits: list[float] = []
    with Stubber(cluster.clients.dynamodb) as stubber:
        yield stubber, Table(cluster.clients.dynamodb, name=TABLE, sleep=waits.append), waits


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


def test_unprocessed_keys_are_asked_for_again(stubbed: tuple[Stubber, Table, list[float]]) -> None:
    stubber, table, waits = stubbed
    stubber.add_response("batch_get_item", _answer([1], left=[2]), _request([1, 2]))
    stubber.add_response("batch_get_item", _answer([2], left=[]), _request([2]))
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2"])) == ["AROA:i-1", "AROA:i-2"]
    stubber.assert_no_pending_responses()
    assert waits == [0.1]


def test_fails_when_the_table_stays_busy(stubbed: tuple[Stubber, Table, list[float]]) -> None:
    stubber, table, _ = stubbed
    for _attempt in range(5):
        stubber.add_response("batch_get_item", _answer([], left=[1]), _request([1]))
    with pytest.raises(TableBusyError, match="left 1 keys unread 5 times"):
        table.read_nodes(["AROA:i-1"])
