import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from bootstrap.cluster.membership import EMPTY, Member, Membership, members_to_json
from bootstrap.cluster.record_fields import RecordError
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import NODE_FIELDS, Stored, Table
from bootstrap.contract import GENERATION_ID, MEMBERSHIP_ID, TABLE_KEY
from bootstrap.errors import TableBusyError
from bootstrap.failures import DELAYS
from tests.bootstrap.given import NETWORKS, instance_id, public_key
from tests.bootstrap.simulated_cluster import TABLE, Cluster

Stubbed = tuple[Stubber, Table, list[float]]
"""DynamoDB's scripted answers, a table that gets them, and how long it waited."""


NOTHING = Stored(membership=EMPTY, condition={"ConditionExpression": "attribute_not_exists(id)"})


def record(number: int) -> NodeRecord:
    return NodeRecord(
        record_id=f"AROA:i-{number}",
        instance_id=instance_id(number),
        node_type="worker",
        host_key=public_key(number),
    )


@pytest.fixture
def table(cluster: Cluster) -> Table:
    return Table(cluster.clients.dynamodb, name=TABLE, networks=NETWORKS)


@pytest.fixture
def stubbed(cluster: Cluster) -> Iterator[Stubbed]:
    waits: list[float] = []
    with Stubber(cluster.clients.dynamodb) as stubber:
        yield stubber, Table(cluster.clients.dynamodb, name=TABLE, networks=NETWORKS, sleep=waits.append), waits


def test_membership_is_empty_before_the_first_write(table: Table) -> None:
    assert table.read_membership() == EMPTY


def test_membership_is_replaced_only_by_who_saw_the_last_one(table: Table) -> None:
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
    # What another coordinator wrote meanwhile stays, both of it.
    lost = Membership(generation=1, desired_nodes=9, members=())
    assert not table.replace_membership(nothing, lost)
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
        ("ConditionalCheckFailed", "TransactionConflict"),
        ("ConditionalCheckFailed", "ThrottlingError"),
    ],
)
def test_race_that_is_lost_is_an_answer(stubbed: Stubbed, codes: tuple[str, ...]) -> None:
    stubber, table, _ = stubbed
    _cancelled(stubber, *codes)
    assert not table.replace_membership(NOTHING, Membership(generation=1, desired_nodes=2, members=()))


FIRST = Membership(generation=1, desired_nodes=2, members=())


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"])
@pytest.mark.parametrize("place", [0, 1])
def test_transaction_that_a_busy_table_cancels_is_tried_again(stubbed: Stubbed, code: str, place: int) -> None:
    stubber, table, waits = stubbed
    for _ in range(3):
        _cancelled(stubber, *("None", code)[:: 1 if place else -1])
    stubber.add_response("transact_write_items", {})
    assert table.replace_membership(NOTHING, FIRST)
    assert waits == [0.2, 0.4, 0.8]
    stubber.assert_no_pending_responses()


THROTTLED = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")


@pytest.mark.parametrize("code", [*THROTTLED, "TransactionConflictException"])
def test_write_that_a_busy_table_refuses_is_tried_again(stubbed: Stubbed, code: str) -> None:
    stubber, table, waits = stubbed
    for operation, write in (
        ("put_item", lambda: table.write_node(record(1))),
        ("transact_write_items", lambda: table.replace_membership(NOTHING, FIRST)),
    ):
        stubber.add_client_error(operation, code, "slow down")
        stubber.add_response(operation, {})
        write()
    assert waits == [0.2, 0.2]
    stubber.assert_no_pending_responses()


def test_conflict_that_lasts_is_a_race_that_is_lost(stubbed: Stubbed) -> None:
    stubber, table, waits = stubbed
    for _ in range(4):
        _cancelled(stubber, "TransactionConflict", "None")
    assert not table.replace_membership(NOTHING, FIRST)
    assert len(waits) == 3


@pytest.mark.parametrize(("code", "tries"), [("ThrottlingError", 4), ("ValidationError", 1)])
def test_fails_when_a_transaction_is_cancelled_for_good(stubbed: Stubbed, code: str, tries: int) -> None:
    stubber, table, waits = stubbed
    for _ in range(tries):
        _cancelled(stubber, "None", code)
    with pytest.raises(ClientError, match="Transaction cancelled") as error:
        table.replace_membership(NOTHING, FIRST)
    assert isinstance(error.value, DELAYS)
    assert len(waits) == tries - 1


def test_fails_when_the_table_refuses_a_transaction(stubbed: Stubbed) -> None:
    stubber, table, waits = stubbed
    stubber.add_client_error("transact_write_items", "AccessDeniedException", "not yours")
    with pytest.raises(ClientError, match="not yours"):
        table.replace_membership(NOTHING, FIRST)
    assert not waits


def test_node_records_of_a_large_cluster_are_read_in_batches(table: Table) -> None:
    for number in range(130):
        table.write_node(record(number))
    ids = [record(number).record_id for number in range(130)]
    assert table.read_nodes([*ids, "AROA:i-absent"]) == {each: record(n) for n, each in enumerate(ids)}


def test_record_that_cannot_be_used_hides_no_other(cluster: Cluster, table: Table) -> None:
    table.write_node(record(1))
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


def test_keys_of_newer_agents_are_passed_over(cluster: Cluster, table: Table) -> None:
    membership = Membership(generation=1, desired_nodes=2, members=())
    table.replace_membership(NOTHING, membership)
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
    membership = Membership(generation=3, desired_nodes=2, members=())
    table.replace_membership(NOTHING, membership)
    table.write_node(record(1))
    for record_id in (MEMBERSHIP_ID, GENERATION_ID, record(1).record_id):
        set_version(cluster, record_id, {"N": version})
    assert table.read_membership() == membership
    assert table.read_generation() == 3
    assert table.read_nodes([record(1).record_id]) == {record(1).record_id: record(1)}


@pytest.mark.parametrize(("version", "named"), [({"N": "0"}, "'0'"), ({"S": "1"}, "a dict"), ({"N": "-1"}, "'-1'")])
def test_fails_when_the_version_of_a_record_is_none(
    cluster: Cluster, table: Table, version: dict[str, str], named: str
) -> None:
    table.replace_membership(NOTHING, Membership(generation=1, desired_nodes=2, members=()))
    for record_id, read in ((MEMBERSHIP_ID, table.read_membership), (GENERATION_ID, table.read_generation)):
        set_version(cluster, record_id, version)
        with pytest.raises(RecordError, match=f"record version must be .*, got {named}"):
            read()


@pytest.mark.parametrize(("record_id", "field"), [(MEMBERSHIP_ID, "members"), (GENERATION_ID, "generation")])
def test_fails_when_a_newer_record_lacks_what_we_need(
    cluster: Cluster, table: Table, record_id: str, field: str
) -> None:
    table.replace_membership(NOTHING, Membership(generation=1, desired_nodes=2, members=()))
    set_version(cluster, record_id, {"N": "2"}, remove=field)
    read = table.read_membership if record_id == MEMBERSHIP_ID else table.read_generation
    with pytest.raises(RecordError, match=f"{field} must be an attribute of type ., got none"):
        read()


def set_version(cluster: Cluster, record_id: str, version: dict[str, str], *, remove: str | None = None) -> None:
    cluster.clients.dynamodb.update_item(
        TableName=TABLE,
        Key={TABLE_KEY: {"S": record_id}},
        UpdateExpression="SET version = :other" + (f" REMOVE {remove}" if remove else ""),
        ExpressionAttributeValues={":other": version},
    )


def test_node_says_that_it_is_away_and_what_its_key_is(table: Table) -> None:
    said = replace(record(1), draining=True, ssh_key=public_key("cluster"))
    table.write_node(said)
    assert table.read_nodes([said.record_id]) == {said.record_id: said}


def test_node_records_of_older_agents_are_there_and_have_no_key(cluster: Cluster, table: Table) -> None:
    table.write_node(record(1))
    cluster.clients.dynamodb.update_item(
        TableName=TABLE, Key={TABLE_KEY: {"S": record(1).record_id}}, UpdateExpression="REMOVE away, ssh_key"
    )
    assert table.read_nodes([record(1).record_id]) == {record(1).record_id: record(1)}


@pytest.mark.parametrize("key", ["ssh-rsa AAAA", f"{public_key(1)} comment", f'{public_key(1)}\nfrom="0.0.0.0/0" ssh'])
def test_key_of_a_record_is_one_key_and_nothing_else(key: str) -> None:
    with pytest.raises(RecordError, match="ssh_key of 'AROA:i-1' must be an ed25519 key"):
        replace(record(1), ssh_key=key)


def _answer(numbers: list[int], *, left: list[int]) -> dict[str, object]:
    items = [
        {
            TABLE_KEY: {"S": record(number).record_id},
            "version": {"N": "2"},
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
    asked = {
        "Keys": keys,
        "ConsistentRead": True,
        "ProjectionExpression": ", ".join(NODE_FIELDS),
        "ExpressionAttributeNames": NODE_FIELDS,
    }
    return {"RequestItems": {TABLE: asked}}


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
    with pytest.raises(TableBusyError, match="left 1 of 1 keys unread 5 times"):
        table.read_nodes(["AROA:i-1"])


def test_one_key_that_the_table_keeps_back_hides_no_other(stubbed: Stubbed, caplog: pytest.LogCaptureFixture) -> None:
    stubber, table, _ = stubbed
    stubber.add_response("batch_get_item", _answer([1], left=[2]), _request([1, 2]))
    for _attempt in range(5):
        stubber.add_response("batch_get_item", _answer([], left=[2]), _request([2]))
    assert list(table.read_nodes(["AROA:i-1", "AROA:i-2"])) == ["AROA:i-1"]
    assert "left 1 of 2 keys unread 5 times" in caplog.text


def test_answers_that_bring_one_record_each_are_enough(stubbed: Stubbed) -> None:
    """DynamoDB keeps keys back when an answer grows large, and any node can make its record large."""
    stubber, table, _ = stubbed
    numbers = list(range(12))
    for number in numbers:
        stubber.add_response(
            "batch_get_item", _answer([number], left=numbers[number + 1 :]), _request(numbers[number:])
        )
    assert len(table.read_nodes([record(number).record_id for number in numbers])) == 12


def test_records_of_400_kb_hide_no_other(cluster: Cluster, table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """moto's answers end at 16 MB, as DynamoDB's: 60 such records take two."""
    filler = "x" * (380 * 1024)
    for number in range(60):
        large = {"S": filler} if number % 2 else {"S": public_key(number)}
        cluster.clients.dynamodb.put_item(
            TableName=TABLE,
            Item={
                TABLE_KEY: {"S": record(number).record_id},
                "version": {"N": "2"},
                "instance_id": {"S": instance_id(number)},
                "node_type": {"S": "worker"},
                "host_key": large,
                **({} if number % 2 else {"more": {"S": filler}}),
            },
        )
    for number in range(60, 100):
        table.write_node(record(number))
    found = table.read_nodes([record(number).record_id for number in range(100)])
    assert list(found.values()) == [record(number) for number in (*range(0, 60, 2), *range(60, 100))]
    assert max(map(len, caplog.messages)) < 200


# ---- a membership that somebody forged ----


def members(*by_index: int) -> tuple[Member, ...]:
    return tuple(
        Member(
            node_index=node_index,
            instance_id=instance_id(node_index),
            address=f"10.0.0.{node_index}",
            node_type="master" if node_index == 1 else "worker",
            host_key=public_key(node_index),
        )
        for node_index in by_index
    )


def forge(cluster: Cluster, **attributes: object) -> None:
    key = {TABLE_KEY: {"S": MEMBERSHIP_ID}}
    item = cluster.clients.dynamodb.get_item(TableName=TABLE, Key=key)["Item"]
    cluster.clients.dynamodb.put_item(TableName=TABLE, Item=item | attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize("generation", [{"N": "4"}, {"S": "x" * 300_000}, {"BOOL": True}, {"N": "1E+125"}], ids=str)
def test_bad_membership_is_replaced_unless_somebody_was_faster(
    cluster: Cluster, table: Table, generation: dict[str, object]
) -> None:
    table.replace_membership(NOTHING, Membership(generation=4, desired_nodes=3, members=members(1, 2, 3)))
    forge(cluster, generation=generation, desired_nodes={"N": "-1"})
    stored = table.read_stored()
    assert stored.flaw is not None
    assert [member.node_index for member in stored.membership.members] == [1, 2, 3]
    right = Membership(generation=5, desired_nodes=3, members=members(1, 2))
    forge(cluster, generation={"N": "6"})
    assert not table.replace_membership(stored, right)
    assert table.replace_membership(table.read_stored(), right)
    assert (table.read_generation(), table.read_stored().membership, table.read_stored().flaw) == (5, right, None)


@pytest.mark.parametrize("forged", [{"N": "9"}, {"S": "4"}], ids=str)
def test_bad_generation_record_is_a_flaw(cluster: Cluster, table: Table, forged: dict[str, object]) -> None:
    table.replace_membership(NOTHING, Membership(generation=4, desired_nodes=3, members=members(1, 2, 3)))
    assert table.read_stored().flaw is None
    item = {TABLE_KEY: {"S": GENERATION_ID}, "version": {"N": "2"}, "generation": forged}
    cluster.clients.dynamodb.put_item(TableName=TABLE, Item=item)  # type: ignore[arg-type]
    assert table.read_stored().flaw is not None


def test_of_a_bad_membership_the_members_that_are_right_keep_their_node_indexes(cluster: Cluster, table: Table) -> None:
    table.replace_membership(NOTHING, Membership(generation=4, desired_nodes=3, members=members(1, 2, 3, 4)))
    rows = json.loads(members_to_json(members(1, 2, 3, 4)))
    rows[1]["address"] = "$(touch marker)"
    rows[3]["node_index"] = 3
    forge(cluster, members={"S": json.dumps(rows)})
    found = table.read_stored().membership
    assert found.members == members(1, 3)
    with pytest.raises(RecordError, match=r"address must be an IPv4 address in 10\.0\.0\.0/8"):
        table.read_membership()
