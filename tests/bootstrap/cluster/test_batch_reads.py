"""Check that the nodes' records are read in batches, and that no record hides another."""

import pytest

from bootstrap.cluster.table import NODE_FIELDS, Table
from bootstrap.contract import TABLE_KEY
from bootstrap.errors import TableBusyError
from tests.bootstrap.cluster.table_records import StubbedTable, worker_record
from tests.bootstrap.identities import instance_id, public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import TABLE


def test_node_records_of_a_large_cluster_are_read_in_batches(table: Table) -> None:
    for number in range(130):
        table.write_node(worker_record(number))
    ids = [worker_record(number).record_id for number in range(130)]
    assert table.read_nodes([*ids, "AROA:i-absent"]) == {
        instance_id: worker_record(n) for n, instance_id in enumerate(ids)
    }


def _answer(numbers: list[int], *, left: list[int]) -> dict[str, object]:
    items = [
        {
            TABLE_KEY: {"S": worker_record(number).record_id},
            "version": {"N": "2"},
            "instance_id": {"S": worker_record(number).instance_id},
            "node_type": {"S": "worker"},
            "host_key": {"S": worker_record(number).host_key},
        }
        for number in numbers
    ]
    keys = [{TABLE_KEY: {"S": worker_record(number).record_id}} for number in left]
    return {"Responses": {TABLE: items}, "UnprocessedKeys": {TABLE: {"Keys": keys}} if left else {}}


def _request(numbers: list[int]) -> dict[str, object]:
    keys = [{TABLE_KEY: {"S": worker_record(number).record_id}} for number in numbers]
    asked = {
        "Keys": keys,
        "ConsistentRead": True,
        "ProjectionExpression": ", ".join(NODE_FIELDS),
        "ExpressionAttributeNames": NODE_FIELDS,
    }
    return {"RequestItems": {TABLE: asked}}


def test_unprocessed_keys_are_requested_again(stubbed: StubbedTable) -> None:
    stubber, table, waits = stubbed.stubber, stubbed.table, stubbed.waits
    stubber.add_response("batch_get_item", _answer([1], left=[2]), _request([1, 2]))
    stubber.add_response("batch_get_item", _answer([2], left=[]), _request([2]))
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2"])) == ["AROA:i-1", "AROA:i-2"]
    stubber.assert_no_pending_responses()
    assert waits == [0.1]


def test_busy_table_is_an_error_that_counts_the_unread_keys(stubbed: StubbedTable) -> None:
    stubber, table = stubbed.stubber, stubbed.table
    for _attempt in range(5):
        stubber.add_response("batch_get_item", _answer([], left=[1]), _request([1]))
    with pytest.raises(TableBusyError, match="left 1 of 1 keys unread 5 times"):
        table.read_nodes(["AROA:i-1"])


def test_record_that_dynamodb_never_returns_does_not_hide_others(
    stubbed: StubbedTable, caplog: pytest.LogCaptureFixture
) -> None:
    stubber, table = stubbed.stubber, stubbed.table
    stubber.add_response("batch_get_item", _answer([1], left=[2]), _request([1, 2]))
    for _attempt in range(5):
        stubber.add_response("batch_get_item", _answer([], left=[2]), _request([2]))
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2"])) == ["AROA:i-1"]
    assert "left 1 of 2 keys unread 5 times" in caplog.text


def test_batch_is_complete_even_if_each_answer_has_one_record(stubbed: StubbedTable) -> None:
    # DynamoDB holds keys back when an answer grows large, and any node can make its record large.
    stubber, table = stubbed.stubber, stubbed.table
    numbers = list(range(12))
    for number in numbers:
        stubber.add_response(
            "batch_get_item", _answer([number], left=numbers[number + 1 :]), _request(numbers[number:])
        )
    assert len(table.read_nodes([worker_record(number).record_id for number in numbers])) == 12


def test_large_records_do_not_hide_others(
    cluster: SimulatedCluster, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    # Like DynamoDB's, moto's answers end at 16 MB: 60 such records take two.
    filler = "x" * (380 * 1024)
    for number in range(60):
        large = {"S": filler} if number % 2 else {"S": public_key(number)}
        cluster.clients.dynamodb.put_item(
            TableName=TABLE,
            Item={
                TABLE_KEY: {"S": worker_record(number).record_id},
                "version": {"N": "2"},
                "instance_id": {"S": instance_id(number)},
                "node_type": {"S": "worker"},
                "host_key": large,
                **({} if number % 2 else {"more": {"S": filler}}),
            },
        )
    for number in range(60, 100):
        table.write_node(worker_record(number))
    found = table.read_nodes([worker_record(number).record_id for number in range(100)])
    assert list(found.values()) == [worker_record(number) for number in (*range(0, 60, 2), *range(60, 100))]
    assert max(map(len, caplog.messages)) < 200
