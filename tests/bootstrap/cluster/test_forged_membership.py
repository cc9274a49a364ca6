"""Check that a forged membership is recognized, and that its valid members keep their indexes."""

import json

import pytest

from bootstrap.cluster.membership import Member, Membership, members_to_json
from bootstrap.cluster.record_validation import RecordError
from bootstrap.cluster.table import Table
from bootstrap.contract import GENERATION_ID, MEMBERSHIP_ID, TABLE_KEY
from tests.bootstrap.cluster.table_records import NOTHING_STORED
from tests.bootstrap.identities import instance_id, public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import TABLE


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


def forge(cluster: SimulatedCluster, **attributes: object) -> None:
    key = {TABLE_KEY: {"S": MEMBERSHIP_ID}}
    item = cluster.clients.dynamodb.get_item(TableName=TABLE, Key=key)["Item"]
    cluster.clients.dynamodb.put_item(TableName=TABLE, Item=item | attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize("generation", [{"N": "4"}, {"S": "x" * 300_000}, {"BOOL": True}, {"N": "1E+125"}], ids=str)
def test_bad_membership_is_replaced_unless_another_node_did_it(
    cluster: SimulatedCluster, table: Table, generation: dict[str, object]
) -> None:
    table.replace_membership(NOTHING_STORED, Membership(generation=4, desired_nodes=3, members=members(1, 2, 3)))
    forge(cluster, generation=generation, desired_nodes={"N": "-1"})
    stored = table.read_stored()
    assert stored.error is not None
    assert [member.node_index for member in stored.membership.members] == [1, 2, 3]
    right = Membership(generation=5, desired_nodes=3, members=members(1, 2))
    forge(cluster, generation={"N": "6"})
    assert not table.replace_membership(stored, right)
    assert table.replace_membership(table.read_stored(), right)
    assert (table.read_generation(), table.read_stored().membership, table.read_stored().error) == (5, right, None)


@pytest.mark.parametrize("forged", [{"N": "9"}, {"S": "4"}], ids=str)
def test_bad_generation_record_is_an_error(cluster: SimulatedCluster, table: Table, forged: dict[str, object]) -> None:
    table.replace_membership(NOTHING_STORED, Membership(generation=4, desired_nodes=3, members=members(1, 2, 3)))
    assert table.read_stored().error is None
    item = {TABLE_KEY: {"S": GENERATION_ID}, "version": {"N": "2"}, "generation": forged}
    cluster.clients.dynamodb.put_item(TableName=TABLE, Item=item)  # type: ignore[arg-type]
    assert table.read_stored().error is not None


def test_valid_members_of_a_bad_membership_keep_their_indexes(cluster: SimulatedCluster, table: Table) -> None:
    table.replace_membership(NOTHING_STORED, Membership(generation=4, desired_nodes=3, members=members(1, 2, 3, 4)))
    rows = json.loads(members_to_json(members(1, 2, 3, 4)))
    rows[1]["address"] = "$(touch marker)"
    rows[3]["node_index"] = 3
    forge(cluster, members={"S": json.dumps(rows)})
    found = table.read_stored().membership
    assert found.members == members(1, 3)
    with pytest.raises(RecordError, match=r"address must be an IPv4 address in 10\.0\.0\.0/8"):
        table.read_membership()
